package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Marks of RDMA traffic by common agreement of NICs and switches: priority 3 is lossless, and DSCP
// 26 (AF31) is mapped to it.
const (
	rocePriority = 3
	roceDSCP     = 26
)

// ethernetOverhead is what a frame has beyond its IP packet: addresses and type 14 bytes, a VLAN tag 4, the checksum 4.
const ethernetOverhead = 14 + 4 + 4

// switches returns notes on the network between the nodes.
func (v *view) switches() []Artifact {
	mtu := v.in.Lab.Fabric.MTU
	var b strings.Builder
	b.WriteString(mdComment(v.made))
	b.WriteString("# The network between the nodes\n\n")
	fmt.Fprintf(&b, "The lab's MTU is %d: RDMA payloads of %d bytes fit.\n\n", mtu, v.in.Lab.Fabric.RDMAPayload())
	b.WriteString("## Is there a switch at all?\n\n" +
		"- A cable from NIC to NIC (loopback lab, two ports): no switch, nothing to set here. Two NICs that talk to " +
		"each other alone drop nothing, unless both send more than the " +
		"receiver's host can take; flow control on both ports (`ethtool -A IFACE rx on tx on`) covers that.\n")
	if v.hasVFs() {
		b.WriteString("- Virtual functions of one port talk to each other inside the NIC: their traffic never " +
			"reaches the cable. The port still has to have a link, unless its firmware keeps " +
			"the internal switch up without one.\n")
	}
	b.WriteString("- More ports than two: a switch, and what follows.\n\n")
	b.WriteString("## What the switch has to do\n\n")
	fmt.Fprintf(&b, "| what | value | why |\n| --- | --- | --- |\n"+
		"| MTU of the ports | %d bytes of frame or more (%d of packet); 9216 is what most people set | a frame that "+
		"is too long is dropped without a word: small messages work, large ones hang |\n"+
		"| trust | DSCP | packets keep their mark across routers, where the VLAN's priority is lost |\n"+
		"| DSCP %d | to priority (traffic class) %d | RDMA has a queue of its own |\n"+
		"| PFC | on for priority %d only, on every port of the fabric, both directions | the queue loses nothing. "+
		"Pause for all traffic (802.3x) must be off then: the two exclude each other |\n"+
		"| buffer | a lossless pool for priority %d, with headroom for the cable's length | a pause takes effect "+
		"only after what is on the way has arrived |\n"+
		"| ECN | on for priority %d: marks begin at about 150 KB of queue and are certain at about 1.5 MB, for 25 to "+
		"100 Gb/s | senders slow down (DCQCN) before PFC has to stop them |\n"+
		"| CNP, DSCP 48 | strict priority, queue 6 | the notice to slow down must not wait in the queue that it is "+
		"about |\n\n",
		mtu+ethernetOverhead, mtu, roceDSCP, rocePriority, rocePriority, rocePriority, rocePriority)
	b.WriteString("The figures for ECN are a start, not a law: measure with `ib_write_bw` from several senders to " +
		"one.\n\n")
	b.WriteString("## The NICs have to agree\n\n")
	b.WriteString(v.qosHost())
	b.WriteString("## Examples\n\nPort names stand for yours. Each maker's manual knows more; these are the settings " +
		"of the table above and no more.\n\n")
	b.WriteString(switchExamples)
	b.WriteString("## Check\n\n")
	b.WriteString("- Path: `ping -M do -s " + fmt.Sprint(mtu-28) +
		" ADDRESS` from node to node: packets of the full MTU (" + fmt.Sprint(mtu) +
		" less 28 bytes of headers) arrive.\n" +
		"- Loss: after a test `rdma statistic show` in the nodes: `out_of_sequence`, `packet_seq_err` and " +
		"`local_ack_timeout_err` stay as they were.\n" +
		"- Pauses: `ethtool -S IFACE | grep prio3_pause` counts on both ends under load, `rx_prio3_discards` " +
		"stays 0.\n" +
		"- Marks: `np_ecn_marked_roce_packets` and `rp_cnp_handled` in " +
		"`/sys/class/infiniband/DEVICE/ports/1/hw_counters` count under congestion.\n")
	return []Artifact{text("switch.md", b.String())}
}

// qosHost says how the ends mark their traffic.
func (v *view) qosHost() string {
	where := "in each node"
	if v.hasVFs() {
		where = "on the host, for the physical function (a virtual function has no say in it)"
	}
	var names []string
	for _, p := range v.allPorts() {
		if p.isVF() {
			if nic := v.nics[p.card.ID]; nic != nil && len(nic.Netdevs) > 0 {
				names = append(names, oneLine(nic.Netdevs[0]))
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	iface := "IFACE"
	if len(names) == 1 {
		iface = shellWord(names[0])
	}
	return fmt.Sprintf("Trust and PFC, %s:\n\n"+
		"    mlnx_qos -i %s --trust dscp --pfc 0,0,0,1,0,0,0,0     # NVIDIA's tools\n"+
		"    dcb app add dev %s dscp-prio %d:%d                    # or iproute2 and an in-tree driver\n"+
		"    dcb pfc set dev %s prio-pfc all:off %d:on\n\n"+
		"The mark itself, in each node: traffic class %d is DSCP %d shifted by the two bits of ECN.\n\n"+
		"    echo %d > /sys/class/infiniband/DEVICE/tc/1/traffic_class      # NVIDIA's driver: all QPs\n"+
		"    cma_roce_tos -d DEVICE -t %d                                   # or for rdma_cm\n"+
		"    ib_write_bw --tclass=%d ...                                    # or for one test\n\n",
		where, iface, iface, roceDSCP, rocePriority, iface, rocePriority, roceDSCP<<2, roceDSCP, roceDSCP<<2,
		roceDSCP<<2, roceDSCP<<2)
}

const switchExamples = `### NVIDIA Onyx (MLNX-OS)

    interface ethernet 1/1-1/2 mtu 9216 force
    interface ethernet 1/1-1/2 qos trust L3
    dcb priority-flow-control enable force
    dcb priority-flow-control priority 3 enable
    interface ethernet 1/1-1/2 dcb priority-flow-control mode on force
    interface ethernet 1/1-1/2 traffic-class 3 congestion-control ecn minimum-absolute 150 maximum-absolute 1500

Recent releases do all of it by "roce lossless". Check: show interfaces ethernet 1/1 counters pfc prio 3.

### NVIDIA Cumulus Linux (NVUE)

    nv set interface swp1-2 link mtu 9216
    nv set qos roce mode lossless
    nv config apply

This sets PFC on priority 3, ECN, and DSCP 26 by itself. Check: nv show qos roce.

### SONiC

DSCP 26 to traffic class 3 and on to priority 3, and PFC, in /etc/sonic/config_db.json; then config reload:

    "DSCP_TO_TC_MAP": {"ROCE": {"26": "3", "48": "6"}},
    "TC_TO_PRIORITY_GROUP_MAP": {"ROCE": {"3": "3", "6": "0"}},
    "TC_TO_QUEUE_MAP": {"ROCE": {"3": "3", "6": "6"}},
    "MAP_PFC_PRIORITY_TO_QUEUE": {"ROCE": {"3": "3"}},
    "PORT_QOS_MAP": {"Ethernet0": {"dscp_to_tc_map": "ROCE", "tc_to_queue_map": "ROCE", "tc_to_pg_map": "ROCE",
                                   "pfc_to_queue_map": "ROCE", "pfc_enable": "3"}},
    "WRED_PROFILE": {"ROCE": {"ecn": "ecn_all", "wred_green_enable": "true",
                              "green_min_threshold": "150000", "green_max_threshold": "1500000",
                              "green_drop_probability": "100"}},
    "QUEUE": {"Ethernet0|3": {"wred_profile": "ROCE"}}

Releases before 202111 write references as "[DSCP_TO_TC_MAP|ROCE]". Write every other DSCP into the map as well, to
traffic class 0: what is left out is undefined. MTU: config interface mtu Ethernet0 9216. The lossless buffer follows
from speed and cable length (CABLE_LENGTH) where the platform computes it. Check: show pfc counters.

### Arista EOS

    interface Ethernet1-2
       mtu 9214
       qos trust dscp
       priority-flow-control on
       priority-flow-control priority 3 no-drop
       uc-tx-queue 3
          random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes
    qos map dscp 26 to traffic-class 3

Check: show priority-flow-control counters. Names of queues differ between platforms.

`

// rate returns the slowest link rate among the ports of the lab in Gb/s; 0 where none is known.
func (v *view) rate() int64 {
	var rates []int64
	for _, p := range v.allPorts() {
		if p.card == nil {
			continue
		}
		if nic := v.nics[p.card.ID]; nic != nil && nic.SpeedMbps != nil && *nic.SpeedMbps > 0 {
			rates = append(rates, *nic.SpeedMbps/1000)
		}
	}
	if len(rates) == 0 {
		return 0
	}
	return slices.MinFunc(rates, cmp.Compare)
}
