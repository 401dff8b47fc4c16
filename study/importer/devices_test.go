package importer_test

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/study/importer"
)

// The devices are the ones in MPI's command.
func TestDevicesOfMPI(t *testing.T) {
	t.Parallel()
	const table = "# OSU MPI Bandwidth Test v5.6.2\n# Size      Bandwidth (MB/s)\n1    1.00\n2    2.00\n"
	for command, want := range map[string]string{
		"$ UCX_NET_DEVICES=mlx5_1:1,mlx5_0:1 mpirun ./osu_bw\n":             "mlx5_1 mlx5_0",
		"$ mpirun -x UCX_NET_DEVICES=\"mlx5_2:1\" ./osu_bw\n":               "mlx5_2",
		"$ mpirun --mca btl_openib_if_include mlx5_0 ./osu_bw\n":            "mlx5_0",
		"$ mpirun -x UCX_NET_DEVICES=all ./osu_bw\n":                        "",
		"$ mpirun ./osu_bw\n":                                               "",
		"$ mpirun -x UCX_NET_DEVICES=mlx5_0:1,mlx5_0:2,mlx5_1:1 ./osu_bw\n": "mlx5_0 mlx5_1",
	} {
		s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{"a.txt": command + table}))
		o := s.Runs[0].Samples[0].Origin
		if got := strings.TrimSpace(o.Device + " " + strings.Join(o.Rails, " ")); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
