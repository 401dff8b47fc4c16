// Package rivals places the lab nodes of a problem by the published rules of other tools, so that their placements can
// be compared with ours under one cost model: "rackless plan --compare".
//
// Each rival is a plain retelling of an algorithm in our own words, close enough to the original
// that the original's worked examples come out the same. Lab nodes are placed one after another in
// the order of the lab, each with what the earlier ones left: none of these systems looks ahead, and
// none moves what it has placed.
//
// If a system cannot say what we ask (a reserve, cores that are not split, IOMMU groups), the
// package does what its operators do. If it leaves something to chance, the lowest address or
// number is taken. If its answer has no place in our model (virtual CPUs that float, cores shared
// by threads), it is rounded in its favour and the broken rule is listed in [Outcome].Broken: such a
// cost is too low rather than too high.
//
// docs/rivals.md describes each rival: its rules, its sources, and what was filled in.
package rivals
