package connectx

import (
	"time"

	"github.com/rackless/rackless/roce"
)

// The wire: messages as RoCE v2 frames, by package roce.

type wireQP struct{}

func (p *Port) wireTick(time.Duration)           {}
func (p *Port) wireReset()                       {}
func (p *Port) wireReceive([]byte) bool          { return false }
func (p *Port) wireSend(*queue) bool             { return false }
func (p *Port) wireRemove(*queue)                {}
func (p *Port) wireState(*queue, roce.State)     {}
func (p *Port) wireCounters() *roce.PortCounters { return nil }
