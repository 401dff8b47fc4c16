// Package search finds the placement of least cost of a [plan.Problem], and proves that there is
// none cheaper; or that there is none at all.
//
// # What is searched
//
// Cores are not searched one by one. Interchangeable free cores, those of one NUMA node, package,
// thread count and size, form a pool. What a lab node costs by itself, and the counts that have to be
// kept, depend only on how many cores it has of each pool. These numbers and its devices are a column
// of the lab node, as in column generation. Which cores of a pool they are matters for shared L3
// caches only. Given the counts, that is a packing problem of each group of pools that share caches
// (pack.go). Which memory they use is then a transportation problem (flow.go). So a placement is a
// column for each lab node, and its cost is
//
//	own costs + unequal + shared ports + packing + transportation + distance to housekeeping
//
// None of these parts can shrink when one more lab node is placed. So the cost of some lab nodes is
// a lower bound of every placement that contains them. The branch and bound in tree.go rests on
// that. It is exact: the enumerator leaves out a column only if its bound is not below the best cost
// known, if it breaks a rule, or if another column that is tried differs from it only in the names
// of interchangeable devices or lab nodes (symmetry.go).
//
// # Words
//
//	pool          a class of interchangeable cores
//	column        one lab node's cores by pool, and its devices
//	own cost      what a column costs whatever the others do
//	price         a Lagrange multiplier: what the relaxation asks for a thing that lab nodes compete for
//	reduced cost  own cost plus charge, which is the prices of what the column takes
//	dive          a greedy column from one NUMA node, without a search
//
// # The order of the work
//
//  1. Counts: cores, memory, and each lab node alone. Most requests that cannot be met are refused
//     here.
//  2. The root bound: what each lab node costs alone, memory included (pages.go), plus what sharing
//     L3 caches costs at least by counting caches and pieces (cover.go).
//  3. Lagrangian relaxation (bound.go). Cores of a NUMA node, bundles, virtual functions and being on
//     a port get a price each. For any prices of 0 or more it gives a lower bound. A common price for
//     all ports comes first; cheapest columns that the work did not last for are looked for again
//     there; then comes the subgradient method. Round prices near those that it finds are
//     tried as well, since the best ones usually are round. Equal lab nodes that cannot all cost the
//     same are told apart by the cost of the cheapest of them, which brings the term "unequal" into
//     the bound (equal.go).
//  4. A greedy placement, hardest lab node first, each at its least cost beside those before it. A
//     few likely columns from each NUMA node come first (dive.go), so that a search that is stopped
//     has found something. Where there are 64 lab nodes or more, they make a whole placement before
//     step 2. If many are all different, they are placed again, those first that were served worst;
//     then ruin and recreate (ruin.go) has the work that is left. Else two
//     and three lab nodes at a time are taken off and placed again as well as possible, a large
//     neighbourhood search (local.go), and cores are exchanged where lab nodes span NUMA
//     nodes (exchange.go). Up to 16 lab nodes are searched for a few steps (5) before prices are
//     found (3): a small tree takes less time than good prices do.
//  5. The tree. At each depth the bound of the lab nodes to come is their cheapest columns in what
//     is left. One whose cheapest column still fits keeps it, so that little has to be found again.
//
// The search ends at once where cost and bound meet, which for most labs is before the tree.
//
// docs/performance.md shows what happens without each part, and the first comment of a file names the
// case that needs it.
//
// # Lab nodes with many devices
//
// Eight GPUs and eight virtual functions can be picked in millions of ways. The enumerator bounds a
// partial choice by the best that can come of it (ahead.go): each GPU to come pays half of its
// cheapest paths to others; a port to come costs its distance and saves at most so much on the
// paths of GPUs; and so many NUMA nodes with cores can be next to only so many devices. Core splits
// are bounded by the memory that finds no room beside them and, for one lab node, by the L3 caches
// of tenants (spill.go). On a host that is empty the bound usually meets the first dive.
//
// One lab node alone competes with nobody: then there are no prices, the root bound is that of the
// empty choice, and the tree follows the dives.
//
// # Ties and reproducibility
//
// Nothing depends on time, on addresses in memory or on the order of maps: the same problem gives
// the same bytes, and a search that is stopped by its limit of steps stops at the same point. A
// step is a visit of a node of some enumeration, and more for dearer work; none takes longer than a
// few microseconds. Of equal columns the one with earlier pools, then with earlier devices, is tried
// first; of interchangeable lab nodes the earlier one gets the earlier pools and devices; and of the
// cores of an L3 cache the earlier lab nodes get those with the lowest numbers. A later placement
// replaces the best one only where it is cheaper.
//
// # What is proved when it is stopped
//
// Result.Bound is then the best bound of steps 2 and 3: no placement costs less. Packings that took
// too long count with their lower bound, and then the result is not called optimal.
package search
