package search

import "slices"

// twinWork bounds the search for interchangeable devices, in comparisons.
const symmetryWork = 20_000_000

// The case that needs interchangeable devices: four lab nodes with whole NICs on a machine where most NICs are alike
// (openshift-must-gather, bare metal). It is proved at 21190; without interchangeable devices the search is stopped at
// 25150, since it tries the same placement under many names.

// findTwins finds devices that can change places in any placement at no cost and against no rule:
// alone in their bundles, alike in themselves, wanted by the same lab nodes, and with the same
// paths to all other devices. Being interchangeable devices goes over from one pair to the next, so that each needs
// to know only the one before it.
func (m *model) findSymmetries() {
	n := len(m.devices)
	m.symmetric = make([]int, n)
	size := make([]int, m.bundles)
	for d := range m.devices {
		size[m.devices[d].bundle]++
	}
	wanted := make([][]bool, n) // by want, over all lab nodes
	for i := range m.requests {
		if i > 0 && m.requests[i].rep == m.requests[i-1].rep {
			continue
		}
		for _, w := range m.requests[i].wants {
			for d := range m.devices {
				wanted[d] = append(wanted[d], false)
			}
			for _, d := range w.any {
				wanted[d][len(wanted[d])-1] = true
			}
		}
	}
	work := 0
	for d := range m.devices {
		m.symmetric[d] = -1
		if work > symmetryWork {
			continue // a twin that is not known as one costs time only
		}
		if size[m.devices[d].bundle] > 1 {
			continue
		}
		for o := d - 1; o >= 0; o-- {
			work++
			if m.devices[o].home == m.devices[d].home {
				work += n
			}
			if size[m.devices[o].bundle] == 1 && m.alike(o, d) && slices.Equal(wanted[o], wanted[d]) {
				m.symmetric[d] = o
				break
			}
		}
	}
}

// alike reports whether two devices are the same but for their names.
func (m *model) alike(a, b int) bool {
	x, y := m.devices[a], m.devices[b]
	x.bundle = y.bundle
	if x != y {
		return false
	}
	n := len(m.devices)
	for d := range n {
		if d != a && d != b && (m.pairCost[a*n+d] != m.pairCost[b*n+d] || m.gpuCost[a*n+d] != m.gpuCost[b*n+d]) {
			return false
		}
	}
	return true
}
