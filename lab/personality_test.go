package lab

import "testing"

func TestPersonalityOfGPUs(t *testing.T) {
	l := mustParse(t, "name: x\nnodes:\n  a: {image: debian-13+gpu+vfio, gpus: [1, {count: 2, personality: vfio}, "+
		"{personality: virtio}]}\n  b: {image: debian-13+vfio, gpus: {personality: vfio, count: 3}}\n  c: {gpus: 2}\n")
	for i, want := range []string{"virtio vfio vfio virtio virtio", "vfio vfio vfio virtio virtio",
		"virtio virtio virtio virtio virtio"} {
		got := ""
		for gpu := range 5 {
			got += " " + string(l.Nodes[i].PersonalityOf(gpu))
		}
		if got != " "+want {
			t.Errorf("node %s: %s, want %s", l.Nodes[i].Name, got, want)
		}
	}
	if !l.Nodes[0].HasVFIO() || l.Nodes[2].HasVFIO() {
		t.Error("GPUs of the wrong node are for vfio-pci")
	}
	if l.Nodes[2].EmulatesGPUs() || !l.Nodes[1].EmulatesGPUs() {
		t.Error("a personality says that GPUs are emulated")
	}
	// Node b is written as it was read.
	if got, want := l.Nodes[1].gpus(), "{count: 3, personality: vfio}"; got != want {
		t.Errorf("written as %s", got)
	}
}
