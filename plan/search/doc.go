// Package search finds the cheapest placement of a [plan.Problem] and proves that none is cheaper, or that there is
// none at all.
//
// # Search space
//
// Cores are not searched one by one. Interchangeable free cores (of one NUMA node, package, thread count and size) form
// a pool. The own cost of a lab node and the counts in the rules depend only on its number of cores in each pool. These
// numbers and its devices are a column of the lab node, as in column generation. The choice of cores within a pool
// matters only for shared L3 caches: given the counts, it is a packing problem for each group of pools that share
// caches (pack.go). The choice of memory is then a transportation problem (flow.go). The cost of a placement is
//
//	own costs + unequal + shared ports + packing + transportation + distance to housekeeping
//
// None of these parts can shrink if one more lab node is placed. So the cost of some lab nodes is a lower bound on
// every placement that contains them, which is the basis of the branch and bound in tree.go. It is exact: the
// enumerator leaves out a column only if its bound is not below the best known cost, if it breaks a rule, or if it
// differs from another only in the names of interchangeable devices or lab nodes (symmetry.go).
//
// # Terms
//
//	pool          a class of interchangeable cores
//	column        one lab node's cores by pool, and its devices
//	own cost      the cost of a column independent of other lab nodes
//	price         a Lagrange multiplier: the relaxation's price of a resource for which lab nodes compete
//	reduced cost  own cost plus charge, the sum of the prices of the column's resources
//	dive          a greedy column from one NUMA node, without a search
//
// # Order of the work
//
//  1. Counts of cores and memory, and each lab node alone.
//  2. The root bound: the cost of each lab node alone, memory included (pages.go), plus the least cost of sharing L3
//     caches (cover.go).
//  3. Lagrangian relaxation (bound.go): first a common price for all ports, then the subgradient method, then round
//     prices. If equal lab nodes cannot all have the same cost, they are told apart by the cost of the cheapest of
//     them, which brings the term "unequal" into the bound (equal.go).
//  4. A greedy placement, hardest lab node first. A few likely columns from each NUMA node come first (dive.go). With
//     64 lab nodes or more, they make a whole placement before step 2. If many are all different, they are placed
//     again, the worst served first; then ruin and recreate (ruin.go) gets the remaining work. Otherwise two and three
//     lab nodes at a time are removed and placed again (local.go), and cores are exchanged if lab nodes span NUMA
//     nodes (exchange.go). Up to 16 lab nodes are searched for a few steps (5) before prices are found (3), because a
//     small tree takes less time than good prices do.
//  5. The tree. At each depth the bound of the remaining lab nodes is the sum of their cheapest columns in the
//     remaining host. A cheapest column that still fits is kept.
//
// The search ends as soon as cost and bound meet, for most labs before the tree. Then preferences decide among
// placements of equal cost: prefer.go, emit.go, tidy.go.
//
// docs/performance.md shows the effect of omitting each part, and the first comment of a file names the case that needs
// it.
//
// # Lab nodes with many devices
//
// The enumerator bounds a partial choice by its best possible completion (ahead.go). Core splits are bounded by the
// memory that does not fit beside them and, for one lab node, by the L3 caches of tenants (spill.go).
//
// A single lab node has no competitors: there are no prices, the root bound is the bound of the empty choice, and the
// tree follows the dives.
//
// # Ties and reproducibility
//
// Nothing depends on time, memory addresses or map order, and a search that is stopped by its limit of steps stops at
// the same point. A step is a visit of a node of some enumeration; expensive work counts as more, and none takes longer
// than a few microseconds. Of equal columns the one with earlier pools, then with earlier devices, is tried first. Of
// interchangeable lab nodes the earlier one gets the earlier pools and devices, and of the cores of an L3 cache the
// earlier lab nodes get the lowest numbers. A later placement replaces the best one only if it is cheaper.
//
// # Stopped searches
//
// Result.Bound is then the best bound of steps 2 and 3. Packings that took too long count with their lower bound, and
// then the result is not called optimal.
package search
