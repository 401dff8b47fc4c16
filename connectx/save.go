package connectx

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/roce"
)

// saved is what Save writes. The device id guards against restoring into another model. gob leaves out unexported
// fields, which revive makes anew, and knows added or missing ones by their names.
type saved struct {
	Device uint16
	Config []byte
	Beat   uint32
	Tables *tables
}

// Shape is a digest of what an adapter of a model tells its driver: a state that was saved is of use where it is the
// same. stateFormat is raised where an older state would not do although the driver sees nothing new.
func Shape(model string) string {
	p := &Port{model: models[model], s: &Server{gids: map[gidKey]*Port{}}}
	p.hardReset()
	h := sha256.New()
	fmt.Fprintln(h, stateFormat, p.model, barSize, p.config)
	for _, c := range []map[bits]uint64{generalCaps, ethCaps, atomicCaps, roceCaps, flowCaps} {
		fmt.Fprintln(h, c) // in the order of the keys
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

const stateFormat = 1

// Save returns the state of the adapter, without guest memory. The guest must be stopped. Messages that are on the wire
// are not saved: a template has none, and elsewhere their senders repeat them.
func (p *Port) Save() ([]byte, error) {
	p.lock()
	defer p.unlock()
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(saved{p.model.device, p.config[:], p.beat, &p.tables})
	return b.Bytes(), err
}

// Restore sets the state that Save returned. The adapter may have another MAC and name than the saved one: see
// NIC.MAC. Call it before QEMU connects, or while the guest is stopped; the reset that QEMU sends when it connects
// does not undo it.
func (p *Port) Restore(state []byte) error {
	t := newTables()
	// gob leaves out what is zero, and zero is not what a new adapter has of these.
	t.Cong, t.QoS = roce.Congestion{}, roce.QoS{}
	in := saved{Tables: &t}
	if err := gob.NewDecoder(bytes.NewReader(state)).Decode(&in); err != nil {
		return fmt.Errorf("connectx: the saved state of an adapter: %w", err)
	}
	if in.Device != p.model.device || len(in.Config) != len(p.config) {
		return errors.New("connectx: the saved state is that of another adapter model")
	}
	if !t.sound() {
		return errors.New("connectx: the saved state of an adapter is damaged")
	}
	p.lock()
	defer p.unlock()
	p.hardReset()
	copy(p.config[:], in.Config)
	p.beat, p.restored = in.Beat, true
	gids := t.GIDs
	t.GIDs = map[uint32]gidEntry{}
	p.tables = t
	for i, g := range gids {
		p.setGID(i, g)
	}
	for _, q := range p.Queues {
		if q.Kind == queueQP && q.State != roce.Reset {
			p.revive(q)
		}
	}
	return nil
}

// sound tells whether contexts have the sizes, and queues the bounds, that all else takes for granted.
func (t *tables) sound() bool {
	for _, q := range t.Queues {
		size, known := contextSizes[q.Kind]
		if !known || len(q.Ctx) != size ||
			q.RecvLog > maxQueueLog || q.SendLog > maxQueueLog || q.StepLog > maxStepLog {
			return false
		}
	}
	for _, c := range t.CQs {
		if len(c.Ctx) != cqcSize || c.Log > maxEventLog {
			return false
		}
	}
	for _, e := range t.EQs {
		if e.Log > maxEventLog || e.Vector >= vectors {
			return false
		}
	}
	return (t.Caps == nil || len(t.Caps) == capSize) && (t.VPort == nil || len(t.VPort) == vportSize)
}

// contextSizes are the lengths of queue.Ctx by kind.
var contextSizes = map[uint8]int{queueQP: qpcSize, queueSQ: wqcSize, queueRQ: wqcSize, queueRMP: wqcSize, queueSRQ: 0}

// revive makes the parts of a QP that are not saved. roce knows no shortcut to a state, so its half goes through the
// states before, with the attributes of the saved context. Numbers of packets start at those that the QP was set up
// with: both ends of a connection must be restored together.
func (p *Port) revive(q *queue) {
	p.setAttr(q)
	q.rang = p.s.now()
	path := []roce.State{roce.Init, roce.ReadyToReceive, roce.ReadyToSend}
	if i := slices.Index(path, q.State); i >= 0 {
		path = path[:i+1]
	} else if q.State == roce.Failed {
		path = []roce.State{roce.Init, roce.Failed}
	}
	for _, to := range path {
		p.wireState(q, to)
	}
	p.wait(q, q.rang)
}
