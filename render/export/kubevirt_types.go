package export

// The objects of Kubernetes that are written, with the keys that are used of them. They are ours, so that the program
// does not contain Kubernetes; make test-judges holds what is written against KubeVirt's definitions.

type meta struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   *metadata `json:"metadata,omitempty"`
}

type metadata struct {
	Name        string            `json:"name,omitempty"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// kubeletConfiguration is the kubelet's own file, of kubelet.config.k8s.io/v1beta1.
type kubeletConfiguration struct {
	meta                    `json:",inline"`
	CPUManagerPolicy        string            `json:"cpuManagerPolicy"`
	CPUManagerPolicyOptions map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	MemoryManagerPolicy     string            `json:"memoryManagerPolicy"`
	TopologyManagerPolicy   string            `json:"topologyManagerPolicy"`
	TopologyManagerScope    string            `json:"topologyManagerScope"`
	ReservedSystemCPUs      string            `json:"reservedSystemCPUs"`
	SystemReserved          map[string]string `json:"systemReserved"`
	ReservedMemory          []reservedMemory  `json:"reservedMemory"`
}

type reservedMemory struct {
	NUMANode int               `json:"numaNode"`
	Limits   map[string]string `json:"limits"`
}

// kubeVirt is the object that configures KubeVirt.
type kubeVirt struct {
	meta `json:",inline"`
	Spec struct {
		Configuration struct {
			Developer struct {
				FeatureGates []string `json:"featureGates"`
			} `json:"developerConfiguration"`
			Permitted *permittedHostDevices `json:"permittedHostDevices,omitempty"`
		} `json:"configuration"`
	} `json:"spec"`
}

type permittedHostDevices struct {
	PCI []pciHostDevice `json:"pciHostDevices"`
}

type pciHostDevice struct {
	Selector string `json:"pciVendorSelector"` // 10DE:20B0
	Resource string `json:"resourceName"`
}

// sriovPolicy is how the SR-IOV network operator makes virtual functions.
type sriovPolicy struct {
	meta `json:",inline"`
	Spec sriovPolicySpec `json:"spec"`
}

type sriovPolicySpec struct {
	ResourceName string            `json:"resourceName"`
	NodeSelector map[string]string `json:"nodeSelector"`
	NumVFs       int               `json:"numVfs"`
	MTU          int               `json:"mtu,omitempty"`
	NICSelector  nicSelector       `json:"nicSelector"`
	DeviceType   string            `json:"deviceType"`
}

type nicSelector struct {
	Vendor      string   `json:"vendor"`
	RootDevices []string `json:"rootDevices"`
}

type networkAttachment struct {
	meta `json:",inline"`
	Spec struct {
		Config string `json:"config"`
	} `json:"spec"`
}

type secret struct {
	meta `json:",inline"`
	Data map[string]string `json:"stringData"`
}

type virtualMachine struct {
	meta `json:",inline"`
	Spec struct {
		RunStrategy string `json:"runStrategy"`
		Template    struct {
			Metadata metadata     `json:"metadata"`
			Spec     instanceSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type instanceSpec struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Domain       struct {
		CPU struct {
			Model     string        `json:"model"`
			Sockets   int           `json:"sockets"`
			Cores     int           `json:"cores"`
			Threads   int           `json:"threads"`
			Dedicated bool          `json:"dedicatedCpuPlacement"`
			Isolate   bool          `json:"isolateEmulatorThread,omitempty"`
			NUMA      *numaSettings `json:"numa,omitempty"`
		} `json:"cpu"`
		Memory struct {
			Guest     string     `json:"guest"`
			Hugepages *hugepages `json:"hugepages,omitempty"`
		} `json:"memory"`
		Firmware struct {
			Bootloader struct {
				EFI struct {
					SecureBoot *bool `json:"secureBoot"`
				} `json:"efi"`
			} `json:"bootloader"`
		} `json:"firmware"`
		Devices devices `json:"devices"`
	} `json:"domain"`
	Networks []network `json:"networks"`
	Volumes  []volume  `json:"volumes"`
}

type numaSettings struct {
	Passthrough struct{} `json:"guestMappingPassthrough"`
}

type hugepages struct {
	PageSize string `json:"pageSize"`
}

type devices struct {
	AutoattachMemBalloon *bool              `json:"autoattachMemBalloon"`
	AutoattachGraphics   *bool              `json:"autoattachGraphicsDevice"`
	RNG                  *struct{}          `json:"rng"`
	Disks                []disk             `json:"disks"`
	GPUs                 []hostDevice       `json:"gpus,omitempty"`
	HostDevices          []hostDevice       `json:"hostDevices,omitempty"`
	Interfaces           []networkInterface `json:"interfaces"`
}

type hostDevice struct {
	Name       string `json:"name"`
	DeviceName string `json:"deviceName"`
}

type disk struct {
	Name string `json:"name"`
	Disk *bus   `json:"disk"`
}

type bus struct {
	Bus string `json:"bus"`
}

type networkInterface struct {
	Name       string    `json:"name"`
	MAC        string    `json:"macAddress,omitempty"`
	Masquerade *struct{} `json:"masquerade,omitempty"`
	SRIOV      *struct{} `json:"sriov,omitempty"`
}

type network struct {
	Name   string    `json:"name"`
	Pod    *struct{} `json:"pod,omitempty"`
	Multus *multus   `json:"multus,omitempty"`
}

type multus struct {
	NetworkName string `json:"networkName"`
}

type volume struct {
	Name          string         `json:"name"`
	ContainerDisk *containerDisk `json:"containerDisk,omitempty"`
	CloudInit     *cloudInit     `json:"cloudInitNoCloud,omitempty"`
}

type containerDisk struct {
	Image string `json:"image"`
}

type cloudInit struct {
	Secret  localReference `json:"secretRef"`
	Network localReference `json:"networkDataSecretRef"`
}

type localReference struct {
	Name string `json:"name"`
}
