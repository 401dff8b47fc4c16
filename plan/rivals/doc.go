// Package rivals places the lab nodes of a problem as libvirt does by default and as guides recommend by hand:
// "rackless plan --compare".
//
// If a choice is left to chance, the lowest address or number is taken. A placement that our model cannot express is
// rounded in the rival's favour and the broken rule is listed in [Outcome].Broken: the cost is then too low rather than
// too high. docs/rivals.md describes each rival's rules, sources and assumptions.
package rivals
