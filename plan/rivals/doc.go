// Package rivals places the lab nodes of a problem as libvirt does by default and as guides recommend by hand, to
// compare these placements with ours under one cost model: "rackless plan --compare".
//
// Lab nodes are placed one after another, without moving earlier ones. If a choice is left to chance, the lowest
// address or number is taken. A placement that our model cannot express is rounded in the rival's favour and the broken
// rule is listed in [Outcome].Broken: the cost is then too low rather than too high.
//
// docs/rivals.md describes each rival's rules, sources and assumptions.
package rivals
