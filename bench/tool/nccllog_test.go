package tool

import (
	"strings"
	"testing"
)

const (
	twoHosts = "#  Rank  0 Group  0 Pid 1 on  n1 device  0 [0x81] NVIDIA A100-PCIE-40GB\n" +
		"#  Rank  1 Group  0 Pid 2 on  n1 device  1 [0x82] NVIDIA A100-PCIE-40GB\n" +
		"#  Rank  2 Group  0 Pid 3 on  n2 device  0 [0x81] NVIDIA A100-PCIE-40GB\n"
	oneHost = "#  Rank  0 Group  0 Pid 1 on  n1 device  0 [0x81] NVIDIA L20\n"
	info    = "n1:101855:101885 [0] NCCL INFO "
)

// Each line is one that NCCL, RCCL or their plugins print.
func TestRemarksOfNCCL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, log, want string }{
		{"nothing", twoHosts, "ranks by machine (0-1 on n1, 2 on n2)"},
		{"GPUDirect over a NIC", info + "Channel 00/0 : 0[81000] -> 1[81000] [send] via NET/IB/1/GDRDMA\n" + info +
			"Channel 01/0 : 0[81000] -> 1[81000] [receive] via NET/IB/0(3)/GDRDMA/Shared\n" + info +
			"Channel 00 : 1[2] -> 0[1] via P2P/CUMEM/read\n",
			"transport (2 channels via NET/IB with GDRDMA, 1 channel via P2P)"},
		{"no GPUDirect", info + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)\n" + info +
			"NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'\n" + info + "Channel 00/0 : 0[0] -> 1[0] [send] " +
			"via NET/IB/0\n",
			"transport (1 channel via NET/IB without GDRDMA); GPUDirect RDMA is not used (1 channel via NET/IB " +
				"without GDRDMA; disabled for mlx5_0, mlx5_1): load nvidia-peermem"},
		{"no GPUDirect, without channels", twoHosts + info + "NET/IB : GPU Direct RDMA Disabled for HCA 0 : bnxt_re0\n",
			"GPUDirect RDMA is not used (disabled for bnxt_re0): load nvidia-peermem"},
		{"a module that is not needed", oneHost + info + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n", ""},
		{"GeForce", strings.ReplaceAll(twoHosts, "NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090") + info +
			"Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0\n", "GPUDirect RDMA is not used (1 channel via NET/IB " +
			"without GDRDMA): GeForce GPUs have none"},
		{"TCP", info + "Using network Socket\n" + info + "Channel 00 : 3[b1000] -> 4[18000] [send] via NET/Socket/0\n" +
			info +
			"Ring 01 : 3[3] -> 4[4] via NET/Socket/0\n",
			"transport (2 channels via NET/Socket); NCCL uses TCP between machines (2 channels via NET/Socket): " +
				"NET/IB is"},
		{"TCP, without channels", twoHosts + info + "Using network Socket\n",
			"NCCL uses TCP between machines (Using network Socket): NET/IB is to be used"},
		{"TCP is not used on one machine", oneHost + info + "Using network Socket\n", ""},
		{"no NIC on one machine", oneHost + info + "NET/IB : No device found.\n", ""},
		{"no NIC", twoHosts + info + "NET/IB : No device found.\n", "NCCL found no RDMA device (NET/IB : No device " +
			"found)"},
		{"a communicator of one machine", info + "comm 0x55 rank 1 nRanks 2 nNodes 1 localRanks 2 localRank 1 MNNVL " +
			"0\n" +
			info + "Using network Socket\n", ""},
		{"a provider of libfabric", info + "NET/OFI Selected Provider is tcp;ofi_rxm\n",
			"took the provider tcp, which is no RDMA (NET/OFI Selected Provider is tcp;ofi_rxm): in AWS"},
		{"the right provider", info + "NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)\n", ""},
		{"a NIC that is far", info + "GPU Direct RDMA Enabled for GPU 81000 / HCA 1 (distance 6 <= 7), read 1\n",
			"GPU 81000 and HCA 1 are far apart (GPU Direct RDMA Enabled for GPU 81000 / HCA 1 (distance 6 <= 7)): " +
				"distances of"},
		{"a NIC that is near", info + "GPU Direct RDMA Enabled for GPU 81000 / HCA 1 (distance 4 <= 4), read 1\n", ""},
		{"a processor beside the GPU", oneHost + "NVIDIA GH200 480GB\n" + info +
			"GPU Direct RDMA Enabled for GPU 0 / HCA 1 (distance 6 <= 7), read 1\n", ""},
		{"a NIC that is too far", info + "NET/IB : GPU Direct RDMA Disabled for GPU 3 / HCA 0 (distance 7 > 4)\n",
			"GPUDirect RDMA is off between GPU 3 and HCA 0: they are too far apart"},
		{"shared memory", oneHost + info + "Channel 00 : 0[4] -> 1[5] via SHM/direct/direct\n" + info +
			"Ring 00 : 1[5] -> 0[4] via direct shared memory\n", "GPUs of one machine exchange data through main " +
			"memory (2 channels via SHM): P2P is to be possible"},
		{"no P2P", info + "P2P is disabled between connected GPUs 1 and 0. You can repress this message with " +
			"NCCL_IGNORE_DISABLED_P2P=1.\n", "GPUs 1 and 0 may not access each other"},
		{"RCCL on a host without iommu=pt", "a:1:2 [0] NCCL WARN Missing \"iommu=pt\" from kernel command line which " +
			"can lead to system instablity or hang!\n", "iommu=pt is missing on the kernel's command line"},
		{"a virtual switch", info + "                + PCI[0.2] - PCI/0-6000 (11f8400011f80000)\n" + info +
			"                              + PCI[24.0] - GPU/0-f000 (0)\n",
			"NCCL takes a PCI link for 0.2 GB/s (PCI[0.2] - PCI/0-6000)"},
		{"variables", "$ mpirun --bind-to none -x NCCL_P2P_DISABLE=1 -x NCCL_IB_HCA=mlx5_0/1,bnxt_re0 " +
			"all_reduce_perf -b 8\n",
			"NCCL_P2P_DISABLE is set (NCCL_P2P_DISABLE=1): unset it: it switches a transport off that NCCL would " +
				"choose; NCCL_IB_HCA has mlx5_0/1, which is no device and port"},
		{"a variable that is off", info + "NCCL_IB_DISABLE set by environment to 0.\n", ""},
		{"NICs", info + "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>\n",
			"NICs that NCCL found (mlx5_0:1, mlx5_1:1)"},
		{"ranks that are not bound", "$ mpirun -np 8 ./build/alltoall_perf -b 8 -e 1G -f 2 -g 1\n",
			"mpirun chose the CPUs of the ranks (the command has no --bind-to: $ mpirun -np 8"},
		{"ranks of another launcher", "$ mpiexec -prepend-rank -n 8 ./build/alltoall_perf -b 8\n", ""},
	} {
		var parts []string
		for _, r := range NCCLRemarks([]byte(tt.log)) {
			part := r.What + " (" + r.Evidence + ")"
			if r.Fix != "" {
				part += ": " + r.Fix
			}
			parts = append(parts, part)
		}
		got := strings.Join(parts, "; ")
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %s, want %q", tt.name, got, tt.want)
		}
	}
}
