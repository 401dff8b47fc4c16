// Package rack is a lab as it runs: it brings a lab up, records on disk what was made, finds it
// again from any later process and ends it.
//
// One lab is one directory below Dirs.Run, which holds its state, sockets and logs; `down` removes
// it whole. A file lock beside the directory lets one process at a time change a lab. There is no
// process that watches over labs: Up compares what is with what should be, and does the difference.
//
// What makes the nodes is behind the interface Runtime. Its implementations are packages below
// this one, which register a Driver when they are imported: emulated runs nodes as processes on a
// switch of their own, placed runs them as domains of libvirt on the devices of a host. This
// package knows neither.
package rack

import (
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/userdirs"
)

// Dirs are the places where rackless keeps things.
type Dirs = userdirs.Dirs

// DefaultDirs returns the directories for this user.
var DefaultDirs = userdirs.Default

// What a longer operation reports of its steps.
type (
	Progress = steps.Progress
	Event    = steps.Event
)
