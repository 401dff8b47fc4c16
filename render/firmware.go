package render

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/topology"
)

// firmware returns what is to be set below the operating system: in the NICs by a script, in the
// machine's own firmware by hand.
func (v *view) firmware() []Artifact {
	all := []Artifact{text("firmware/bios.md", v.bios())}
	if v.setsFirmware() {
		all = append(all, program("firmware/nic.sh", v.changesScript(
			"Settings in the firmware of ConnectX and BlueField NICs: SR-IOV with room for one more virtual function "+
				"than the plan hands out on the card, because one is the "+
				"physical function's; Ethernet instead of InfiniBand on cards that can do both. query shows what is "+
				"set and what would be changed, apply sets it, undo brings the "+
				"old values back. Nothing takes effect before the card's next reset.",
			"nic", "/var/lib/rackless", "firmware", "query|apply|undo",
			"The cards take this at their next reset: reboot (a BlueField: switch the power off and on), or, with no "+
				"driver or guest using the card, mstfwreset -d CARD reset")))
	}
	return all
}

// setsFirmware reports whether the plan asks anything of the firmware of NICs.
func (v *view) setsFirmware() bool { return len(v.in.Changes["nic"]) > 0 }

// A biosItem is a setting of the machine's firmware.
type biosItem struct {
	setting, want, found, why string
}

// biosItems returns the settings that matter to the plan, with what the host shows of them.
func (v *view) biosItems() []biosItem {
	amd := isAMD(v.host.System.CPUModel)
	iommu := biosItem{"VT-d / AMD-Vi (IOMMU)", "on", "not known", "devices cannot be passed through without it"}
	if e := v.host.IOMMU.Enabled; e != nil {
		iommu.found = "on: the kernel has made groups"
		if !*e {
			iommu.found = "**off**, or not switched on in the kernel"
		}
	}
	items := []biosItem{
		{"Virtualisation (VT-x / SVM)", "on", "not shown here", "KVM needs it: `ls -l /dev/kvm`"},
		iommu,
		{"ACS (PCIe access control)", "on", v.groupsFound(),
			"puts each device in an IOMMU group of its own; a group goes to one guest whole"},
	}
	if len(v.plan.VFs) > 0 {
		items = append(items, biosItem{"SR-IOV", "on", v.sriovFound(),
			"makes room for the addresses of virtual functions"})
	}
	items = append(items, biosItem{"Above 4G decoding (64-bit MMIO)", "on", v.barsFound(),
		"GPUs with large memories and virtual functions need addresses beyond 4 GiB"})
	nodes := biosItem{"Sub-NUMA clustering (SNC)", "as it is", v.nodesFound(),
		"the plan is made for this; another setting needs another plan"}
	if amd {
		nodes.setting = "NUMA nodes per socket (NPS), memory interleaving"
		nodes.want = "as it is (interleaving on Auto)"
	}
	items = append(items, nodes,
		biosItem{"SMT / Hyper-Threading", "as it is", cmp.Or(mdText(v.host.CPUs.SMT), "not known"),
			"CPU numbers change with it; another setting needs another plan"},
		biosItem{"Power profile", "maximum performance", "not shown here", "no saving on cores, memory or links"},
		biosItem{"Deep C-states", "C1 at most, for rdma-latency; else as it is", "not shown here",
			"waking up from C6 takes tens of microseconds, the round trip two"},
		biosItem{"PCIe ASPM", "off", "not shown here", "links that sleep take microseconds to wake up"},
	)
	return items
}

// groupsFound says whether the IOMMU groups of the plan's devices have strangers.
func (v *view) groupsFound() string {
	ours := map[topology.PCIAddr]bool{}
	for _, a := range v.whole {
		ours[a] = true
	}
	var shared []string
	known := false
	for _, g := range v.host.IOMMU.Groups {
		mine, others := false, 0
		for _, a := range g.Devices {
			d := v.pci[a]
			switch {
			case ours[a]:
				mine = true
			case d == nil || !d.IsBridge():
				others++
			}
		}
		known = known || mine
		if mine && others > 0 {
			shared = append(shared, fmt.Sprint(g.ID))
		}
	}
	switch {
	case len(shared) > 0:
		return "groups " + strings.Join(shared, ", ") + " also have devices that the plan does not give away"
	case known:
		return "groups of the plan's devices have no others"
	}
	return "not known"
}

func (v *view) sriovFound() string {
	var found []string
	for _, c := range v.plan.VFs {
		nic := v.nics[c.PF]
		switch {
		case nic == nil || nic.SRIOV == nil || nic.SRIOV.Total == nil:
			found = append(found, mdText(c.PF)+" **offers none**")
		default:
			found = append(found, fmt.Sprintf("%s offers %d", mdText(c.PF), *nic.SRIOV.Total))
		}
	}
	return strings.Join(found, ", ")
}

// barsFound names the largest BAR of the devices of the plan.
func (v *view) barsFound() string {
	var largest uint64
	for _, a := range v.whole {
		if d := v.pci[a]; d != nil {
			for _, bar := range d.BARs {
				largest = max(largest, bar.SizeBytes)
			}
		}
	}
	if largest == 0 {
		return "not known"
	}
	return fmt.Sprintf("the largest BAR has %s", words.Exact(largest))
}

func (v *view) nodesFound() string {
	if len(v.host.NUMANodes) == 0 {
		return "not known"
	}
	found := fmt.Sprintf("%d NUMA nodes", len(v.host.NUMANodes))
	if n := len(v.host.Packages); n > 0 {
		found += fmt.Sprintf(" in %d sockets", n)
	}
	return strings.Replace(strings.Replace(found, "1 NUMA nodes", "1 NUMA node", 1), " 1 sockets", " 1 socket", 1)
}

func (v *view) bios() string {
	var b strings.Builder
	b.WriteString(mdComment(v.made))
	b.WriteString("# Firmware of the machine\n\n")
	b.WriteString("Set by hand, in the set-up menu or by the management controller (iDRAC, iLO, BMC). Names differ " +
		"from maker to maker.\n\n")
	if name := v.machineName(); name != "" {
		b.WriteString("Machine: " + name + "\n\n")
	}
	b.WriteString("| setting | wanted | found | why |\n| --- | --- | --- | --- |\n")
	for _, i := range v.biosItems() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", i.setting, i.want, i.found, i.why)
	}
	b.WriteString("\nAfter a change of NPS, SNC or SMT the numbers of CPUs and NUMA nodes are others: `rackless " +
		"inspect`, and a new plan, before anything else here.\n")
	return b.String()
}

// machineName names the host as its firmware does.
func (v *view) machineName() string {
	s := v.host.System
	return mdText(strings.Join(strings.Fields(s.Vendor+" "+s.Product+" "+s.CPUModel), " "))
}

// mdComment returns the first lines of a Markdown file: what made it, out of sight of the reader of the page.
func mdComment(s string) string {
	return "<!-- " + strings.ReplaceAll(strings.ReplaceAll(oneLine(s), "--", "- -"), ">", " ") + " -->\n\n"
}

// mdText makes text from outside plain in Markdown: nothing of it is markup, and it ends no table cell.
func mdText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "<", "&lt;", "|", `\|`).Replace(oneLine(s))
}
