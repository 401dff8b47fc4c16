// Package change makes changes to a machine so that each of them can be undone, even after a crash.
//
// An [Op] is one change. Before it is done, its present state is written to the [Journal] and forced to the disk, and
// after it is done, the state that was read back. So a kill or a power cut leaves an op not begun, begun, or done;
// begun ops are done again or undone, since both can be repeated:
//
//	begin (before) ──► Do ──► Read ──► done
//	restoring ──► Restore ──► Read ──► restored
//
// The state before is read once, when an op is first begun, so that an op that is done again does not take its own
// result for the original.
//
// An undo compares the state that was read back with the present one ([Merger]). A difference is somebody else's
// change: rackless leaves and reports it, and the journal forgets the op. If the op was cut off, or the machine was
// booted since, the state may be neither the old nor the new one. Then ops that can recognize an unfinished change,
// such as functions of a card without a driver, are undone, and single values that the op cannot have set are left.
package change
