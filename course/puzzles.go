package course

import (
	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/fabric"
)

// A Puzzle is one way to break a lab of two nodes or more. What it changes is what a user's lab lacks, too.
type Puzzle struct {
	Name    string // one word
	Story   string // what a user of the lab reports
	Hint    string // where to look
	Cause   string // what was broken: shown once it is repaired
	Finding string // the check of verify that fails
	Node    int    // which node is broken, by its place in the lab

	// What is done. A script runs in the node, with these variables: dev, addr, len and mtu are its NIC, its address,
	// the length of the prefix and the MTU; peer is the address of the other node. mends takes breaks back, also where
	// a part of it was repaired by hand. It is not needed where a step of setup does it.
	breaks, mends string
	setting       []fabric.LinkEdit // of the port of the node: made before, and in order
	link          []fabric.LinkEdit // of the same port: what breaks it
	fault         check.Fault       // of the node's adapter
}

// busy is a port at which packets wait, so that a lossless fabric or marks have something to do.
var busy = []fabric.LinkEdit{{Key: "rate", Text: "1Gbit"}, {Key: "trust", Text: "dscp"},
	{Key: "ecn", Text: "32KiB:128KiB:10%"}, {Key: "pfc", Text: "256KiB:128KiB:3"}}

// Puzzles are all puzzles. The first has number 1.
var Puzzles = []Puzzle{
	{
		Name: "mtu", Finding: check.IDMTU, Node: 1,
		Story:  "Small pings from NODE are answered. Large ones are refused, and RDMA is slower than before.",
		Hint:   "Compare what ip link show and ibv_devinfo say on both nodes.",
		Cause:  "eth0 of NODE had an MTU of 1500, so that RDMA packets carried 1024 bytes.",
		breaks: "ip link set $dev mtu 1500",
		mends:  "ip link set $dev mtu $mtu",
	},
	{
		Name: "port", Finding: check.IDLink, Node: 1,
		Story: "NODE is off the network: nobody reaches it, and it reaches nobody.",
		Hint:  "Begin at the cable: ethtool in the node, and rackless fabric for its other end.",
		Cause: "The port of the switch that NODE is on was shut.",
		link:  []fabric.LinkEdit{{Key: fabric.DownKey, Text: "yes"}},
	},
	{
		Name: "netmask", Finding: check.IDReach, Node: 1,
		Story:  "The link of NODE is up, and it has its address. It still answers nobody.",
		Hint:   "Ask NODE which way it sends: ip route get and the address of the other node.",
		Cause:  "The address of NODE had a prefix of 32 bits: no other node was on its network.",
		breaks: "ip addr del $addr/$len dev $dev; ip addr add $addr/32 dev $dev",
		mends:  "ip addr del $addr/32 dev $dev 2>/dev/null; ip addr replace $addr/$len brd + dev $dev",
	},
	{
		Name: "neighbour", Finding: check.IDReach, Node: 0,
		Story:  "NODE cannot reach the other node. All links are up, and all addresses are right.",
		Hint:   "An address is right only with its MAC: ip neigh on NODE, ip link on the other node.",
		Cause:  "NODE had a permanent entry for its neighbour, with a MAC address that no node has.",
		breaks: "ip neigh replace $peer lladdr 02:00:00:00:00:99 dev $dev nud permanent",
		mends:  "ip neigh del $peer dev $dev 2>/dev/null; true",
	},
	{
		Name: "vlan", Finding: check.IDReach, Node: 1,
		Story: "NODE was moved to the storage network last night. Nobody has reached it since.",
		Hint:  "Capture a ping of NODE, and look at the Ethernet header: rackless capture.",
		Cause: "NODE had its address on VLAN 7, and sent tagged frames; the other nodes are on none.",
		breaks: "ip link add link $dev name $dev.7 type vlan id 7 && ip link set $dev.7 up && " +
			"ip addr del $addr/$len dev $dev; ip addr add $addr/$len brd + dev $dev.7",
		mends: "ip link del $dev.7 2>/dev/null; ip addr replace $addr/$len brd + dev $dev",
	},
	{
		Name: "gid", Finding: check.IDSetup, Node: 1,
		Story: "Ping works. The script that ran ib_write_bw -x 3 yesterday fails today.",
		Hint:  "What is GID 3 of each node? ibv_devinfo -v, or the directory gids in sysfs.",
		Cause: "NODE had got another address first. GIDs are counted in the order in which addresses come, so its " +
			"RoCE v2 GID was no longer number 3.",
		breaks: "ip addr del $addr/$len dev $dev; ip addr add 192.0.2.7/32 dev $dev && sleep 1; " +
			"ip addr add $addr/$len brd + dev $dev",
	},
	{
		Name: "loss", Finding: check.IDSwitchLinks, Node: 1,
		Story: "RDMA to NODE has a fraction of the bandwidth that RDMA from it has.",
		Hint:  "Count: rackless fabric, before and after a run of ib_write_bw each way.",
		Cause: "The link to NODE lost 5 % of its frames. RoCE sends again all that follows a lost packet.",
		link:  []fabric.LinkEdit{{Key: "loss", Text: "5%"}},
	},
	{
		Name: "pfc", Finding: check.IDSetup, Node: 0, setting: busy,
		Story:  "RoCE is to be lossless here, in priority 3. The switch holds senders, and NODE does not stop.",
		Hint:   "Both ends must agree on the priority: dcb pfc show on the nodes, rackless fabric for the switch.",
		Cause:  "PFC of priority 3 was off on NODE.",
		breaks: "dcb pfc set dev $dev prio-pfc all:off 2>/dev/null; true",
	},
	{
		Name: "ecn", Finding: check.IDSwitchLinks, Node: 1, setting: busy,
		Story: "The link to NODE is full, and its queue in the switch stays long: senders do not slow down.",
		Hint:  "DCQCN slows down where packets are marked: np_ecn_marked_roce_packets on NODE, rackless fabric.",
		Cause: "The switch no longer marked packets to NODE (ECN).",
		link:  []fabric.LinkEdit{{Key: "ecn", Text: "0"}},
	},
	{
		Name: "firmware", Finding: check.IDAdapterFirmware, Node: 1,
		Story: "NODE lost its network in the middle of a run. Nobody has touched it.",
		Hint:  "Ask the kernel of NODE what its card has said: dmesg. Then rackless nic --help.",
		Cause: "The firmware of the adapter of NODE had stopped with a fatal error.",
		fault: check.FaultFirmware,
	},
}
