package lab

import "net/netip"

// The types of this file are the lab file as the user wrote it: what is absent is nil. The JSON schema is made from
// them, so their tags carry the names and the descriptions of the keys.

type file struct {
	Name     string       `json:"name" jsonschema_description:"Name of the lab. It is part of socket paths and of the names of running things, so it is short."`
	Driver   *Driver      `json:"driver,omitempty" jsonschema_description:"What makes the nodes. auto decides when the lab comes up."`
	Workload *Workload    `json:"workload,omitempty" jsonschema_description:"What the lab is for; placement and advice are weighted by it."`
	Fabric   *fileFabric  `json:"fabric,omitempty" jsonschema_description:"The network between the nodes."`
	Defaults *settings    `json:"defaults,omitempty" jsonschema_description:"Settings for every node that does not have its own."`
	Nodes    fileNodeList `json:"nodes" jsonschema_description:"The nodes by name, in the order in which they get their addresses."`
}

type fileFabric struct {
	MTU    *int          `json:"mtu,omitempty" jsonschema_description:"Bytes of an IP packet on the fabric. RDMA payloads are powers of two: 4200 is the smallest round value that carries 4096 bytes, 1500 carries only 1024."`
	Subnet *netip.Prefix `json:"subnet,omitempty" jsonschema_description:"IPv4 subnet of the first NICs: the n-th node has the n-th address. The second NICs get the next subnet of the same size, and so on."`
}

// settings are the keys that a node and defaults share.
type settings struct {
	CPUs   *int    `json:"cpus,omitempty" jsonschema_description:"Virtual CPUs of the node."`
	Memory *Bytes  `json:"memory,omitempty" jsonschema_description:"Memory of the node, in whole MiB and at least 256MiB. M and G are short for MiB and GiB."`
	Image  *string `json:"image,omitempty" jsonschema_description:"What the node boots: builtin, or an image that the driver knows."`
	NICs   *int    `json:"nics,omitempty" jsonschema_description:"Ports of the node on the fabric."`
	GPUs   *int    `json:"gpus,omitempty" jsonschema_description:"GPUs passed through to the node. The qemu driver cannot pass GPUs through."`
}

type fileNode struct {
	settings
	Count *int `json:"count,omitempty" jsonschema_description:"Makes this many equal nodes: vm with a count of 16 is vm00 to vm15."`
}

// fileNodeList is a mapping in the file; here it is a list, because the order decides who gets which address.
type fileNodeList []namedNode

type namedNode struct {
	name string
	node fileNode
}
