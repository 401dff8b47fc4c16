// Package change makes changes to a machine so that each of them can be undone, even after a crash.
//
// # Ops
//
// An [Op] is one change of the machine: to a file, a value in sysfs, the driver of a PCI function, the arguments of
// the kernels. An op can read the present state, tell whether that is the wanted state, make the change, and restore
// an earlier state. The JSON of an op holds everything that it needs, so that a process that has never seen the plan
// can undo it.
//
// # Journal
//
// Before an op is done, its present state is written to the [Journal] and forced to the disk. After the op is done
// and its state was read back, that is written, too. So a kill or a power cut leaves an op in one of three
// conditions: not begun, begun, or done. Begun ops are simply done again or undone, since both can be repeated:
//
//	begin (before) ──► Do ──► Read ──► done
//	restoring ──► Restore ──► Read ──► restored
//
// The state before is read once, when an op is first begun, and is kept until it is restored. An op that is done
// again, at the next boot or with another value, thus does not take its own result for the original.
//
// # Undo
//
// The state that was read back is in the journal, too. When an op is undone, it compares that state with the present
// one ([Merger]). A difference is somebody else's change: rackless leaves and reports it, and the journal forgets the
// op. If the op was cut off, or the machine was booted since, the state may be neither the old nor the new one. Then
// ops that can recognize an unfinished change, such as functions of a card without a driver, are undone, and single
// values that the op cannot have set are left.
//
// A journal that lost more than the line being written is refused. Its lines are numbered, each has a checksum of all
// lines before it, and a second file records their number. [OpenKnown] opens a damaged journal.
//
// # Machine
//
// A [System] is the machine: a root directory, and a way to run programs. Every single change goes through it, so
// that tests can interrupt there ([System.Fault]).
package change
