// Package rivals places the lab nodes of a problem as libvirt does by default and as guides say to do by hand, so that
// these placements can be compared with ours under one cost model: "rackless plan --compare".
//
// Lab nodes are placed one after another in the order of the lab, each with what the earlier ones left: nobody looks
// ahead, and nobody moves what is placed. If something is left to chance, the lowest address or number is taken.
//
// If an answer has no place in our model (virtual CPUs that float, cores shared by threads), it is rounded in the
// rival's favour and the broken rule is listed in [Outcome].Broken: such a cost is too low rather than too high.
//
// docs/rivals.md describes each rival: its rules, its sources, and the assumptions.
package rivals
