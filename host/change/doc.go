// Package change makes changes to a machine so that each of them can be undone, whatever happens in between.
//
// # Ops
//
// An [Op] is one thing of the machine that is to be different: a file, a value in sysfs, the driver
// of a PCI function, the arguments of the kernels. It can say what is there now, whether that is
// what is wanted, make it so, and bring back what was. An op is a value whose JSON names everything
// that it needs, so that a process that has never seen the plan can undo it.
//
// # Journal
//
// Before an op is made, what was there is written to the [Journal] and forced to the disk; after it
// was made and read back, that is written, too. So there are only three places where a kill or a
// power cut can find it: not begun, begun, done. Begun ops are simply made again or undone,
// since both can be repeated:
//
//	begin (before) ──► Do ──► Read ──► done
//	restoring ──► Restore ──► Read ──► restored
//
// What was there before is read once, when an op is first begun, and is kept until it was restored:
// an op that is made again, at the next boot or with another value, does not take its own work for
// the original.
//
// # Undo
//
// What was read back is in the journal, too, and an op compares it with what it finds when it is undone ([Merger]):
// what somebody has changed since is theirs. It is left and told, and the journal forgets the op. Where an op was cut
// off, or the machine was booted since, there may be something that is neither before nor after; ops of which a
// beginning can be seen, such as functions of a card without a driver, are undone then, and single values that the op
// cannot have set are left.
//
// A journal that lost more than the line that was being written is refused: its lines are numbered, each has a checksum
// of all before it, and a second file tells how many there are. [OpenKnown] opens what is left of one.
//
// # Machine
//
// A [System] is the machine: a root below which files are, and a way to run programs. Every single
// change goes through it, which is where tests break things off ([System.Fault]).
package change
