package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
)

// Names in a cluster.
const (
	// nodeLabel is the label by which the machines of a lab find the host of its plan.
	nodeLabel = "rackless/lab"
	// resourcePrefix is that of devices which KubeVirt's own device plugin offers.
	resourcePrefix = "rackless/"
	// sriovPrefix is the default prefix of the SR-IOV network operator.
	sriovPrefix = "openshift.io/"
	guestDisk   = "quay.io/containerdisks/debian:12"
)

// KubeVirt returns a VirtualMachine for each node of the plan, with what the cluster and the host need for it.
//
// Kubernetes chooses the CPUs and devices of a machine itself, by the rules that kubelet.yaml sets. So the plan gives
// sizes, shapes and counts, and the host by a label.
func KubeVirt(in render.Input) ([]render.Artifact, error) {
	k := kube{in: in}
	if err := k.read(); err != nil {
		return nil, fmt.Errorf("export kubevirt: %w", err)
	}
	var files []render.Artifact
	for _, f := range []struct {
		path string
		make func() ([]byte, error)
	}{{"kubelet.yaml", k.kubelet}, {"kubevirt.yaml", k.cluster}, {"networks.yaml", k.networks},
		{"machines.yaml", k.machines}} {
		data, err := f.make()
		if err != nil {
			return nil, fmt.Errorf("export kubevirt: %s: %w", f.path, err)
		}
		if len(data) > 0 {
			files = append(files, text(f.path, string(data)))
		}
	}
	return files, nil
}

// A kube is a plan as Kubernetes looks at it.
type kube struct {
	in        render.Input
	resources map[string]string // resource by ID of a device that is given whole
	selectors map[string]string // vendor and device, as KubeVirt selects by, by resource
	// isolated is set where each machine gets a core more, for QEMU's own threads.
	isolated bool
	reserved topology.CPUSet // what Kubernetes keeps for the host's own processes
	smt      bool
}

func (k *kube) read() error {
	if err := check(&k.in); err != nil {
		return err
	}
	if err := unique(planned(k.in), k.name); err != nil {
		return err
	}
	k.resources, k.selectors = map[string]string{}, map[string]string{}
	for i := range k.in.Plan.Nodes {
		n := &k.in.Plan.Nodes[i]
		for _, c := range whole(n) {
			id, err := idsOf(k.in.Host, c.ID)
			if err != nil {
				return err
			}
			name := resourcePrefix + c.Kind + "-" + id.vendor + "-" + id.device
			k.resources[c.ID], k.selectors[name] = name, strings.ToUpper(id.vendor+":"+id.device)
		}
	}
	k.reserve()
	return nil
}

// reserve takes a core for each machine from what the host keeps, for QEMU's own threads: Kubernetes has no pool of
// shared CPUs for them. The last core stays with the host.
func (k *kube) reserve() {
	k.reserved = k.in.Plan.Housekeeping.CPUs
	var cores []topology.CPUSet
	for _, c := range k.in.Host.Cores {
		k.smt = k.smt || c.CPUs.Len() > 1
		if c.CPUs.IsSubsetOf(k.reserved) {
			cores = append(cores, c.CPUs)
		}
	}
	if k.isolated = len(cores) > len(k.in.Plan.Nodes); k.isolated {
		for _, c := range cores[len(cores)-len(k.in.Plan.Nodes):] {
			k.reserved = k.reserved.Difference(c)
		}
	}
}

// name is the name of the machine of a lab node.
func (k *kube) name(node string) string { return dns(k.in.Plan.Lab + "-" + node) }

// network is the name of a network of VFs of a NIC, which is one of lower case letters, digits and hyphens.
func (k *kube) network(pf string) string {
	return dns(k.in.Plan.Lab) + "-" + strings.NewReplacer(":", "-", ".", "-").Replace(pf)
}

// resource is the name of the VFs of a NIC as the SR-IOV operator takes it: letters, digits and underscores.
func (k *kube) resource(pf string) string { return strings.ReplaceAll(k.network(pf), "-", "_") }

// evictionHard is what kubelet keeps free by default, in MiB; it counts with what is reserved.
const evictionHard = 100

// systemMiB is what the host's own processes get where the lab file does not say.
const systemMiB = 2048

// kubelet returns the settings of the host that CPUs, memory and devices of one NUMA node need.
func (k *kube) kubelet() ([]byte, error) {
	system := uint64(systemMiB)
	if m := k.in.Lab.Reserve.Memory; m != nil {
		system = uint64(*m) / mib
	}
	first := 0
	for _, n := range k.in.Host.NUMANodes {
		if n.CPUs.Overlaps(k.reserved) {
			first = n.ID
			break
		}
	}
	spans := slices.ContainsFunc(k.in.Plan.Nodes, func(n plan.Node) bool { return len(shares(k.in.Host, &n)) > 1 })
	c := kubeletConfiguration{
		meta:             meta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		CPUManagerPolicy: "static", MemoryManagerPolicy: "Static", TopologyManagerPolicy: "single-numa-node",
		TopologyManagerScope: "pod", ReservedSystemCPUs: k.reserved.String(),
		SystemReserved: map[string]string{"memory": fmt.Sprintf("%dMi", system)},
		ReservedMemory: []reservedMemory{{NUMANode: first,
			Limits: map[string]string{"memory": fmt.Sprintf("%dMi", system+evictionHard)}}},
	}
	why := map[string]string{
		"$.reservedSystemCPUs": "what the plan leaves to the host" + map[bool]string{
			true: ", less a core for each machine, on which QEMU's own threads run"}[k.isolated],
		"$.reservedMemory": fmt.Sprintf("the sum of all nodes has to be systemReserved, kubeReserved and the %d MiB "+
			"of evictionHard", evictionHard),
		"$.topologyManagerPolicy": "each machine fits in one NUMA node of the host: CPUs, pages and devices have to " +
			"be there",
	}
	if spans {
		c.TopologyManagerPolicy = "restricted"
		why["$.topologyManagerPolicy"] = "machines span NUMA nodes: CPUs, pages and devices on as few as can be, or " +
			"no start"
	}
	if k.smt {
		c.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"}
		why["$.cpuManagerPolicyOptions"] = "no two machines on the threads of one core"
	}
	return document(head(k.in, "For the kubelet of the host: merge it into the file of its --config, drain the "+
		"host, remove /var/lib/kubelet/cpu_manager_state and memory_manager_state, and restart it. Kubernetes "+
		"chooses the CPUs: of the plan's numbers only those of the host are here. Hugepages come from the kernel "+
		"arguments of the plan (rackless plan --out)."), c, why)
}

// cluster returns what KubeVirt has to permit.
func (k *kube) cluster() ([]byte, error) {
	p := kubeVirt{meta: meta{APIVersion: "kubevirt.io/v1", Kind: "KubeVirt",
		Metadata: &metadata{Name: "kubevirt", Namespace: "kubevirt"}}}
	c := &p.Spec.Configuration
	c.Developer.FeatureGates = []string{"CPUManager"}
	if k.isolated && k.smt {
		// Otherwise full-pcpus-only would refuse a machine with one CPU more than whole cores.
		p.Metadata.Annotations = map[string]string{"alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity": ""}
		c.Developer.FeatureGates = append(c.Developer.FeatureGates, "AlignCPUs")
	}
	for _, name := range slices.Sorted(maps.Keys(k.selectors)) {
		if c.Permitted == nil {
			c.Permitted = &permittedHostDevices{}
			c.Developer.FeatureGates = append(c.Developer.FeatureGates, "HostDevices")
		}
		c.Permitted.PCI = append(c.Permitted.PCI, pciHostDevice{Selector: k.selectors[name], Resource: name})
	}
	return document(head(k.in, "For the KubeVirt of the cluster: kubectl -n kubevirt patch kubevirt kubevirt "+
		"--type=merge --patch-file kubevirt.yaml, with the feature gates and devices that it has already added to "+
		"these lists. The devices have to be bound to vfio-pci on the host (rackless prepare, or the units of "+
		"rackless plan --out)."), p,
		map[string]string{"$.spec.configuration.developerConfiguration.featureGates": "CPUManager: hosts are " +
			"labelled by whether they can pin. AlignCPUs: QEMU's threads get a whole core. HostDevices: PCI devices " +
			"of the host"})
}

// networks returns, for each NIC with virtual functions in the plan, the policy that makes them and the network that
// hands them out.
func (k *kube) networks() ([]byte, error) {
	var all []byte
	for _, pf := range k.in.Plan.VFs {
		if pf.Lab == 0 {
			continue
		}
		id, err := idsOf(k.in.Host, pf.PF)
		if err != nil {
			return nil, err
		}
		name := k.network(pf.PF)
		policy := sriovPolicy{meta: meta{APIVersion: "sriovnetwork.openshift.io/v1", Kind: "SriovNetworkNodePolicy",
			Metadata: &metadata{Name: name, Namespace: "sriov-network-operator"}}}
		policy.Spec = sriovPolicySpec{ResourceName: k.resource(pf.PF), NumVFs: pf.Count, MTU: k.in.Lab.Fabric.MTU,
			NodeSelector: k.selector(), DeviceType: "vfio-pci",
			NICSelector: nicSelector{Vendor: id.vendor, RootDevices: []string{pf.PF}}}
		doc, err := document(head(k.in, "For the SR-IOV network operator: the virtual functions of NIC "+pf.PF+", "+
			"and the network of their ports. kubectl apply it."), policy, map[string]string{
			"$.spec.deviceType": "the guest's own driver, with RDMA, and not the host's"})
		if err != nil {
			return nil, err
		}
		network := networkAttachment{meta: meta{APIVersion: "k8s.cni.cncf.io/v1", Kind: "NetworkAttachmentDefinition",
			Metadata: &metadata{Name: name, Annotations: map[string]string{
				"k8s.v1.cni.cncf.io/resourceName": sriovPrefix + k.resource(pf.PF)}}}}
		network.Spec.Config = fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "sriov", "spoofchk": "off", `+
			`"trust": "on"}`, name)
		second, err := document("", network, nil)
		if err != nil {
			return nil, err
		}
		all = append(append(all, doc...), second...)
	}
	return all, nil
}

// selector picks the host of the plan.
func (k *kube) selector() map[string]string { return map[string]string{nodeLabel: dns(k.in.Plan.Lab)} }

// machines returns a VirtualMachine for each node, and a Secret with what cloud-init does in it.
func (k *kube) machines() ([]byte, error) {
	seeds, err := render.Seeds(k.in, false)
	if err != nil {
		return nil, err
	}
	var all []byte
	for i := range k.in.Plan.Nodes {
		n := &k.in.Plan.Nodes[i]
		above := ""
		if i == 0 {
			above = head(k.in, fmt.Sprintf("The nodes of the lab. First kubectl label node HOST %s=%s, then kubectl "+
				"apply this, then virtctl start each. Not carried: which CPUs and which of several equal devices a "+
				"machine gets, which Kubernetes decides; the order and the PCI tree of devices in the guest; other "+
				"functions of a card, such as the audio of a GPU, which stay bound to vfio-pci on the "+
				"host.", nodeLabel, dns(k.in.Plan.Lab)))
		}
		secret := secret{meta: meta{APIVersion: "v1", Kind: "Secret", Metadata: &metadata{Name: k.name(n.Name)}},
			Data: map[string]string{"userdata": seeds[i].UserData, "networkdata": seeds[i].NetworkConfig}}
		doc, err := document(above, secret, nil)
		if err != nil {
			return nil, err
		}
		vm, why := k.machine(n, seeds[i].ManagementMAC)
		second, err := document("", vm, why)
		if err != nil {
			return nil, err
		}
		all = append(append(all, doc...), second...)
	}
	return all, nil
}

// machine returns the VirtualMachine of a lab node, with the reason of what a reader would not expect.
func (k *kube) machine(n *plan.Node, management string) (virtualMachine, map[string]string) {
	labels := k.selector()
	vm := virtualMachine{meta: meta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine",
		Metadata: &metadata{Name: k.name(n.Name), Labels: labels}}}
	vm.Spec.RunStrategy = "Halted"
	t := &vm.Spec.Template
	t.Metadata.Labels = labels
	t.Spec.NodeSelector = k.selector()
	const domain = "$.spec.template.spec.domain"
	why := map[string]string{
		"$.spec.template.spec.nodeSelector":      "the host that the plan is for",
		domain + ".cpu.dedicatedCpuPlacement":    "each virtual CPU has a CPU of its own",
		domain + ".devices.autoattachMemBalloon": "pages that devices write to, and hugepages, cannot be given back",
		domain + ".firmware": "UEFI, for GPUs with large memories; without secure boot, under which the kernel " +
			"would refuse drivers that are built on the node",
	}
	d := &t.Spec.Domain
	d.CPU.Sockets, d.CPU.Cores, d.CPU.Threads, _ = n.Topology()
	d.CPU.Model, d.CPU.Dedicated, d.CPU.Isolate = "host-passthrough", true, k.isolated
	if k.isolated {
		why[domain+".cpu.isolateEmulatorThread"] = "QEMU's own threads stay off the CPUs of the guest"
	}
	d.Memory.Guest = kibi(n.MemoryBytes, "")
	if size := pageBytes(n); size > 0 {
		d.Memory.Hugepages = &hugepages{PageSize: kibi(size, "")}
		if n.GuestNUMA {
			d.CPU.NUMA = &numaSettings{}
			why[domain+".cpu.numa"] = "the guest has a NUMA node for each one of the host that its CPUs are on"
		}
	}
	no := false
	d.Devices = devices{AutoattachMemBalloon: &no, AutoattachGraphics: &no, RNG: &struct{}{},
		Disks:      []disk{{Name: "root", Disk: &bus{"virtio"}}, {Name: "seed", Disk: &bus{"virtio"}}},
		Interfaces: []networkInterface{{Name: "management", MAC: management, Masquerade: &struct{}{}}}}
	d.Firmware.Bootloader.EFI.SecureBoot = &no
	t.Spec.Networks = []network{{Name: "management", Pod: &struct{}{}}}
	for i, c := range whole(n) {
		device := hostDevice{Name: fmt.Sprintf("%s%d", c.Kind, i), DeviceName: k.resources[c.ID]}
		if c.Kind == plan.KindGPU {
			d.Devices.GPUs = append(d.Devices.GPUs, device)
		} else {
			d.Devices.HostDevices = append(d.Devices.HostDevices, device)
		}
	}
	for _, p := range n.Ports() {
		if p.Card == nil || p.Card.Kind != plan.KindVF {
			continue
		}
		d.Devices.Interfaces = append(d.Devices.Interfaces, networkInterface{Name: p.Name, MAC: p.MAC,
			SRIOV: &struct{}{}})
		t.Spec.Networks = append(t.Spec.Networks, network{Name: p.Name, Multus: &multus{k.network(p.Card.ID)}})
	}
	ref := localReference{k.name(n.Name)}
	t.Spec.Volumes = []volume{{Name: "root", ContainerDisk: &containerDisk{guestDisk}},
		{Name: "seed", CloudInit: &cloudInit{Secret: ref, Network: ref}}}
	why["$.spec.template.spec.volumes[0]"] = "bring your own image: this one, or a PersistentVolumeClaim"
	return vm, why
}
