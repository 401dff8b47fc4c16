package checks

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
)

// farNIC is a second NIC in the other NUMA node, as in a node of the profile h20-small.
const farNIC = "nic 0000:83:00.0 eth1 mlx5_1 1 /sys/devices/pci0000:80/0000:80:00.0/0000:83:00.0\n"

func TestSettingsThatLeaveAFarNIC(t *testing.T) {
	near := strings.NewReplacer("mlx5_0 -1 ", "mlx5_0 0 ", "0x000000000014220c -1 ", "0x000000000014220c 0 ").
		Replace(seenByNode)
	const none, far = " leaves no RDMA device of the node", "mlx5_1 (SYS), and mlx5_0 is nearer (PIX)"
	for choice, want := range map[string]string{
		"":                                            "",
		"/etc/nccl.conf NCCL_IB_HCA mlx5_1":           "NCCL_IB_HCA=mlx5_1 in /etc/nccl.conf leaves " + far,
		"/etc/nccl.conf NCCL_IB_HCA =mlx5_1:1":        "NCCL_IB_HCA==mlx5_1:1 in /etc/nccl.conf leaves " + far,
		"/etc/nccl.conf NCCL_IB_HCA ^mlx5_0":          "NCCL_IB_HCA=^mlx5_0 in /etc/nccl.conf leaves " + far,
		"/etc/nccl.conf NCCL_IB_HCA ^=mlx5":           "",
		"/etc/nccl.conf NCCL_IB_HCA mlx5":             "", // a prefix of both
		"/etc/nccl.conf NCCL_IB_HCA =mlx5":            "NCCL_IB_HCA==mlx5 in /etc/nccl.conf" + none,
		"/etc/nccl.conf NCCL_IB_HCA mlx5_1,":          "NCCL_IB_HCA=mlx5_1, in /etc/nccl.conf leaves " + far,
		"/etc/nccl.conf NCCL_IB_HCA mlx5_1,mlx5_0":    "",
		"/etc/environment UCX_NET_DEVICES mlx5_1:1":   "UCX_NET_DEVICES=mlx5_1:1 in /etc/environment leaves " + far,
		"/etc/environment UCX_NET_DEVICES mlx5":       "UCX_NET_DEVICES=mlx5 in /etc/environment" + none,
		"/etc/environment UCX_NET_DEVICES all":        "",
		"/etc/environment UCX_NET_DEVICES \"mlx5_1\"": "", // with characters that no name has
	} {
		g := newGPULab(t)
		text := strings.Replace(near, "end\n", farNIC, 1)
		if choice != "" {
			text += "choice " + choice + "\n"
		}
		g.seen["vm01"] = text + "end\n"
		g.check(t)
		all, err := Lab(t.Context(), g.lab, g, []string{IDGPUNIC}, func(string) {})
		if err != nil || len(all) == 0 {
			t.Fatalf("%d findings, %v", len(all), err)
		}
		got := ""
		for _, f := range all {
			if f.Status != finding.OK {
				got += f.ID + " " + f.Subject + ": " + f.Have
			}
		}
		if want != "" {
			want = "gpu-nic vm01 gpu0: " + want
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", choice, got, want)
		}
	}
}
