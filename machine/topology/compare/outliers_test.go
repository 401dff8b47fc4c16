package compare

import (
	"slices"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func hostsOf(of ...[2]string) (hosts []*topology.Host) {
	for _, x := range of {
		hosts = append(hosts, &topology.Host{NICs: []topology.NIC{{Name: "mlx5_0", Firmware: x[0]}},
			Kernel: topology.Kernel{Release: x[1]}})
	}
	return hosts
}

func TestOutliers(t *testing.T) {
	usual := [2]string{"14.32", "6.1"}
	for _, tt := range []struct {
		name    string
		hosts   [][2]string
		typical []int // any of these is allowed
		want    [][]int
	}{
		{"all alike", [][2]string{usual, usual, usual}, []int{0, 1, 2}, nil},
		{"one of four", [][2]string{usual, usual, {"14.18", "6.1"}, usual}, []int{0, 1, 3}, [][]int{{2}}},
		{"the first is the odd one", [][2]string{{"14.18", "5.4"}, usual, usual, usual}, []int{1, 2, 3},
			[][]int{{0}, {0}}},
		{"each odd in its own way", [][2]string{{"14.18", "6.1"}, {"14.32", "5.4"}, usual, usual}, []int{2, 3},
			[][]int{{0}, {1}}},
		{"the rarest first", [][2]string{{"14.18", "5.4"}, {"14.32", "5.4"}, usual, usual, usual}, []int{2, 3, 4},
			[][]int{{0}, {0, 1}}},
		{"of two none is typical", [][2]string{{"14.18", "6.1"}, usual}, []int{0}, [][]int{{1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			typical, outliers := Outliers(hostsOf(tt.hosts...))
			var have [][]int
			for _, o := range outliers {
				have = append(have, o.Hosts)
			}
			if !slices.Contains(tt.typical, typical) || !slices.EqualFunc(have, tt.want, slices.Equal) {
				t.Errorf("typical %d, outliers %v; want one of %v, %v", typical, have, tt.typical, tt.want)
			}
		})
	}
}
