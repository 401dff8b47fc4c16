package tool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The table of docs/measuring.md comes from recorded outputs of nvbandwidth.
func TestThePageOnMeasuringHasTheFiguresOfRealGPUs(t *testing.T) {
	page := string(readFile(t, "../../docs/measuring.md"))
	for model, file := range map[string]string{"NVIDIA H200": "recorded-0.8-h200.txt",
		"NVIDIA H100 80GB HBM3": "recorded-0.8-h100.txt"} {
		printed := readFile(t, "testdata/nvbandwidth/"+file)
		res, err := ParseNVBandwidths(printed)
		if err != nil || !strings.Contains(string(printed), "\nDevice 0: "+model+" (") {
			t.Fatalf("%s: %v", file, err)
		}
		row := "| " + model
		for _, name := range []string{"gpu_bandwidth_h2d", "gpu_bandwidth_d2h", "nvbandwidth_host_to_device_memcpy_sm",
			"nvbandwidth_device_to_host_memcpy_sm", "gpu_bandwidth_local"} {
			i := slices.IndexFunc(res.All, func(x Test) bool { return x.Name == name })
			if i < 0 {
				t.Fatalf("%s has no %s", file, name)
			}
			row += fmt.Sprintf(" | %.2f", res.All[i].Figures[0].Value)
		}
		if !strings.Contains(page, row+" |\n") {
			t.Errorf("no row %s", row)
		}
	}
}
