package export

import "testing"

func TestCommonSetOfNUMANodes(t *testing.T) {
	t.Parallel()
	cpus := func(n uint64) demand { return demand{n, []uint64{16, 16, 16, 16}} }
	gpu := demand{1, []uint64{1, 0, 0, 0}}
	for _, tt := range []struct {
		name    string
		demands []demand
		size    int
	}{
		{"all on one", []demand{cpus(8), gpu}, 1},
		{"CPUs of two, a GPU of one", []demand{cpus(28), gpu}, 0},
		{"a GPU and a NIC of different nodes", []demand{cpus(8), gpu, {1, []uint64{0, 0, 1, 0}}}, 0},
		{"CPUs and GPUs of two", []demand{cpus(28), {2, []uint64{1, 0, 1, 0}}}, 2},
		{"CPUs of two, pages of two " +
			"others", []demand{cpus(28), {2, []uint64{1, 1, 0, 0}}, {2, []uint64{0, 0, 1, 1}}}, 0},
		{"more than there is", []demand{cpus(65)}, 0},
	} {
		if got := commonSet(tt.demands, 4); got != tt.size {
			t.Errorf("%s: %d NUMA nodes, want %d", tt.name, got, tt.size)
		}
	}
}
