package build

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// wants uses count for a Lab without expanded requests.
func (b *problemBuilder) wants(node, key, kind string, requests []lab.DeviceRequest, count int) []plan.Want {
	if len(requests) == 0 && count > 0 {
		requests = []lab.DeviceRequest{{Count: count}}
	}
	total := 0
	for _, r := range requests {
		if r.Count < 1 || r.Count > MaxNodeDevices || total+r.Count > MaxNodeDevices {
			b.fail(node, key, "asks for %d: want 1 to %d in all", r.Count, MaxNodeDevices)
			return nil
		}
		total += r.Count
	}
	var wants []plan.Want
	before := len(b.errs)
	for _, r := range requests {
		if k := r.ForEmulated(); k != "" {
			b.fail(node, key, "%s is for emulated GPUs, and %s has its own: leave it out, or run the lab with "+
				"driver: qemu", k, b.name)
			continue
		}
		w := plan.Want{Count: r.Count, Text: requestText(r)}
		if r.Address != "" {
			w.Any = b.byAddress(node, key, kind, r)
		} else {
			w.Any = b.bySelector(node, key, kind, r)
		}
		if w.Any == nil {
			continue
		}
		if n := b.offer(kind, w.Any); n < w.Count {
			b.fail(node, key, "asks for %s and %s can give %s%s", w.Text, b.name, b.offerText(kind, n, w.Any),
				b.othersRefused(kind, r))
			continue
		}
		wants = append(wants, w)
	}
	if len(b.errs) > before {
		return nil
	}
	b.checkTogether(node, key, kind, wants, total)
	return wants
}

// checkTogether compares requests of one lab node. The search finds other conflicts, with a worse message.
func (b *problemBuilder) checkTogether(node, key, kind string, wants []plan.Want, total int) {
	var all []int
	for i, w := range wants {
		for _, other := range wants[:i] {
			if kind != plan.KindVF && len(w.Any) == 1 && slices.Equal(w.Any, other.Any) {
				b.fail(node, key, "asks for %s twice: one %s is one device", b.p.Devices[w.Any[0]].ID, kindWord(kind))
				return
			}
		}
		all = append(all, w.Any...)
	}
	all = lists.Distinct(all)
	if n := b.offer(kind, all); n < total {
		b.fail(node, key, "asks for %d in all and %s can give %s", total, b.name, b.offerText(kind, n, all))
	}
}

func requestText(r lab.DeviceRequest) string {
	if r.Address != "" {
		return r.Address
	}
	var parts []string
	if r.Vendor != "" {
		parts = append(parts, "vendor "+words.Plain(r.Vendor))
	}
	if r.Model != "" {
		parts = append(parts, "model "+words.Plain(r.Model))
	}
	if r.NUMANode != nil {
		parts = append(parts, fmt.Sprintf("NUMA node %d", *r.NUMANode))
	}
	if r.RateMbps > 0 {
		parts = append(parts, "at least "+rateText(r.RateMbps))
	}
	if len(parts) == 0 {
		return fmt.Sprint(r.Count)
	}
	return fmt.Sprintf("%d of %s", r.Count, strings.Join(parts, ", "))
}

func rateText(mbps int64) string {
	if mbps >= 1000 && mbps%100 == 0 {
		return fmt.Sprintf("%g Gb/s", float64(mbps)/1000)
	}
	return fmt.Sprintf("%d Mb/s", mbps)
}

func (b *problemBuilder) offer(kind string, devices []int) int {
	if kind != plan.KindVF {
		return len(devices)
	}
	return lists.Sum(devices, func(d int) int { return b.p.Devices[d].VFs })
}

func (b *problemBuilder) offerText(kind string, n int, devices []int) string {
	if len(devices) == 0 {
		return fmt.Sprint(n)
	}
	ids := b.ids(devices)
	of := ""
	if kind == plan.KindVF {
		of = "of "
	}
	return fmt.Sprintf("%d (%s%s)", n, of, listText(ids))
}

// othersRefused tells users with eight GPUs the reasons: "can give 6" would confuse them.
func (b *problemBuilder) othersRefused(kind string, r lab.DeviceRequest) string {
	var refused group.By[string, string] // devices by reason
	for i, d := range b.p.Devices {
		if why := b.notGiven(kind, i); why != "" && d.Kind == deviceKind(kind) && b.mismatch(i, r) == "" {
			refused.Add(why, words.Plain(d.ID))
		}
	}
	text := ""
	for i, why := range refused.Keys {
		if i == maxListed {
			return text + fmt.Sprintf("; and others for %d more reasons", len(refused.Keys)-maxListed)
		}
		text += "; not " + listText(refused.Of(why)) + ": " + why
	}
	return text
}

func deviceKind(kind string) string {
	if kind == plan.KindVF {
		return plan.KindNIC
	}
	return kind
}

func (b *problemBuilder) notGiven(kind string, device int) string {
	d, f := &b.p.Devices[device], &b.facts[device]
	if kind != plan.KindVF {
		return d.Refused
	}
	switch {
	case d.VFs > 0:
		return ""
	case f.noVFsReason != "":
		return f.noVFsReason
	case totalVFs(f.sriov) > 0:
		return "all its virtual functions are held by other VMs"
	case f.number == topology.VendorMellanox.String():
		return "it offers no virtual functions; for a ConnectX, turn them on in its firmware (mlxconfig set " +
			"SRIOV_EN=1 NUM_OF_VFS=8), then restart"
	}
	return "it offers no virtual functions"
}

// bySelector returns nil if it finds no device, and reports which condition excluded which devices.
func (b *problemBuilder) bySelector(node, key, kind string, r lab.DeviceRequest) []int {
	if r.NUMANode != nil {
		if _, ok := b.nodeOf[*r.NUMANode]; !ok {
			b.fail(node, key, "%s has no NUMA node %d: %s", b.name, *r.NUMANode, b.nodesThere())
			return nil
		}
	}
	any := []int{}
	var excluded group.By[string, string] // devices by condition
	there := 0
	for i, d := range b.p.Devices {
		if d.Kind != deviceKind(kind) {
			continue
		}
		there++
		if why := b.mismatch(i, r); why != "" {
			excluded.Add(why, words.Plain(d.ID))
		} else if b.notGiven(kind, i) == "" {
			any = append(any, i)
		}
	}
	if len(any) > 0 || r == (lab.DeviceRequest{Count: r.Count}) || there > 0 && len(excluded.Keys) == 0 {
		return any // may be too few: the caller reports it
	}
	parts := lists.Map(excluded.Keys, func(why string) string { return listText(excluded.Of(why)) + " " + why })
	text := strings.Join(parts, "; ")
	if there == 0 {
		text = "it has no " + kindWord(deviceKind(kind)) + " at all"
	}
	if kind == plan.KindGPU && lab.IsPartOfGPU(r.Model) {
		b.fail(node, key, partOfGPU, words.Plain(r.Model))
		return nil
	}
	b.fail(node, key, "nothing on %s is %s: %s%s", b.name, requestText(r), text, b.othersRefused(kind, r))
	return nil
}

const partOfGPU = "%s is a part of a GPU: " + lab.NoPartsOfGPUs

// mismatch is worded to follow the ID of device i, or "".
func (b *problemBuilder) mismatch(i int, r lab.DeviceRequest) string {
	d, f := &b.p.Devices[i], &b.facts[i]
	switch {
	case r.Vendor != "" && !containsFold(d.Vendor, r.Vendor) && !sameNumber(f.number, r.Vendor):
		return "by " + plainOr(d.Vendor, "an unknown vendor")
	case r.Model != "" && !containsFold(d.Model, r.Model):
		return "of " + plainOr(d.Model, "an unknown model")
	case r.NUMANode != nil && d.NUMANode == nil:
		return "on an unknown NUMA node"
	case r.NUMANode != nil && *d.NUMANode != *r.NUMANode:
		return fmt.Sprintf("on NUMA node %d", *d.NUMANode)
	case r.RateMbps > 0 && d.RateUnknown:
		return "with a link whose rate is not known"
	case r.RateMbps > d.RateMbps && d.RateMbps == 0:
		return "with a link that is down"
	case r.RateMbps > d.RateMbps:
		return "with " + rateText(d.RateMbps)
	}
	return ""
}

func plainOr(name, unknown string) string {
	if name == "" {
		return unknown
	}
	return words.Plain(name)
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// sameNumber accepts 0x10de and 10DE.
func sameNumber(number, asked string) bool {
	id, err := topology.ParseID16(asked)
	return err == nil && len(asked) >= 4 && number == id.String()
}

func (b *problemBuilder) byAddress(node, key, kind string, r lab.DeviceRequest) []int {
	fail := func(format string, args ...any) []int {
		b.fail(node, key, format, args...)
		return nil
	}
	shown := words.Plain(r.Address)
	found := b.lookUp(r.Address, deviceKind(kind))
	if len(found) > 1 {
		return fail("%s may be %s: give the address", shown, rowText(b.ids(found)))
	}
	if len(found) == 0 {
		if kind == plan.KindGPU && lab.IsPartOfGPU(r.Address) {
			return fail(partOfGPU, shown)
		}
		if why := b.elsewhere(kind, r.Address); why != "" {
			return fail("%s", why)
		}
		addr, err := topology.ParsePCIAddr(r.Address)
		if i := b.cardOf(addr, deviceKind(kind)); err == nil && i >= 0 {
			b.note("%s: %s: %s is a function of %s, which goes as a whole", node, key, addr, b.p.Devices[i].ID)
			found = []int{i}
		} else {
			return fail("no device %s on %s: %s", shown, b.name, b.devicesThere(kind))
		}
	}
	id := words.Plain(b.p.Devices[found[0]].ID)
	why := b.notGiven(kind, found[0])
	switch {
	case why != "" && kind == plan.KindVF:
		return fail("%s gives no virtual functions: %s", id, why)
	case why != "":
		return fail("%s cannot be given away: %s", id, why)
	}
	if why := b.mismatch(found[0], r); why != "" {
		return fail("%s is %s", id, why)
	}
	return found
}

// lookUp returns the device with that address, or else all with that name.
func (b *problemBuilder) lookUp(name, kind string) []int {
	addr, err := topology.ParsePCIAddr(name)
	var found []int
	for i, f := range b.facts {
		switch d := &b.p.Devices[i]; {
		case d.Kind != kind:
		case err == nil && f.addr != nil && *f.addr == addr:
			return []int{i}
		case d.ID == name || slices.Contains(f.names, name):
			found = append(found, i)
		}
	}
	return found
}

func (b *problemBuilder) cardOf(a topology.PCIAddr, kind string) int {
	for i := range b.facts {
		if b.p.Devices[i].Kind == kind && slices.Contains(b.facts[i].card, a) {
			return i
		}
	}
	return -1
}

// elsewhere describes an address of another kind of device, a screen, or a virtual function, or returns "".
func (b *problemBuilder) elsewhere(kind, name string) string {
	other := plan.KindNIC
	if deviceKind(kind) == plan.KindNIC {
		other = plan.KindGPU
	}
	if found := b.lookUp(name, other); len(found) > 0 {
		return fmt.Sprintf("%s is a %s: ask for it under %ss", words.Plain(name), kindWord(other), other)
	}
	a, err := topology.ParsePCIAddr(name)
	if err != nil {
		return ""
	}
	if g := b.host.GPU(a); g != nil && g.Kind == topology.GPUDisplay {
		return fmt.Sprintf("%s (%s) only drives a screen: nothing computes on it", a,
			words.Plain(cmp.Or(g.Model, "no model known")))
	}
	p := b.tree.Device(a)
	for i := range b.facts {
		for _, vf := range b.facts[i].vfs {
			if vf.addr == a && (p != nil || kind == plan.KindVF) {
				return fmt.Sprintf("%s is virtual function %d of %s: ask for vfs: %s", a, vf.index, b.p.Devices[i].ID,
					b.p.Devices[i].ID)
			}
		}
	}
	if p == nil || b.cardOf(a, deviceKind(kind)) >= 0 {
		return ""
	}
	if p.ClassName != "" {
		return fmt.Sprintf("%s is no %s but: %s", a, kindWord(deviceKind(kind)), words.Plain(p.ClassName))
	}
	return fmt.Sprintf("%s is no %s", a, kindWord(deviceKind(kind)))
}

func (b *problemBuilder) devicesThere(kind string) string {
	ids := lists.Where(b.p.Devices, func(d plan.Device) bool {
		return d.Kind == deviceKind(kind) && (kind != plan.KindVF || d.VFs > 0)
	})
	what := kindWord(deviceKind(kind)) + "s"
	if kind == plan.KindVF {
		what += " with virtual functions"
	}
	if len(ids) == 0 {
		return "it has no " + what
	}
	return what + " are " + rowText(b.ids(ids))
}

func (b *problemBuilder) ids(devices []int) []string {
	return lists.Map(devices, func(d int) string { return words.Plain(b.p.Devices[d].ID) })
}

// addAffinity also checks a Lab made by a program.
func (b *problemBuilder) addAffinity() {
	index := map[string]int{}
	for i := range b.p.Requests {
		name := b.p.Requests[i].Name
		if _, twice := index[name]; twice {
			b.fail(name, "", "two lab nodes have this name: give each its own")
		}
		index[name] = i
	}
	for _, a := range b.lab.Affinity {
		before := len(b.errs)
		var members []int
		for _, name := range a.Nodes {
			i, ok := index[name]
			switch {
			case !ok:
				b.fail("", "affinity", "no lab node is called %s", words.Plain(name))
			case slices.Contains(members, i):
				b.fail("", "affinity", "%s is there twice", words.Plain(name))
			}
			members = append(members, i)
		}
		if len(b.errs) == before && len(members) < 2 {
			b.fail("", "affinity", "it has %s: want at least 2", words.Count(len(members), "lab node"))
		}
		numa, nic := b.togetherness("numa", a.NUMA), b.togetherness("nic", a.NIC)
		if len(b.errs) > before || numa == "" && nic == "" {
			continue
		}
		slices.Sort(members)
		if nic == plan.Same && b.cannotShare(members) {
			continue
		}
		b.p.Affinity = append(b.p.Affinity, plan.Affinity{Requests: members, NUMA: numa, NIC: nic})
	}
}

func (b *problemBuilder) togetherness(key string, t lab.Togetherness) string {
	switch t {
	case lab.Same:
		return plan.Same
	case lab.Different:
		return plan.Different
	case "":
	default: // not from the parser
		b.fail("", "affinity", "%s: %q: want same or different", key, string(t))
	}
	return ""
}

// cannotShare reports lab nodes that are to share NICs although they request whole ones.
func (b *problemBuilder) cannotShare(members []int) bool {
	for _, i := range members {
		if r := &b.p.Requests[i]; len(r.NICs) > 0 {
			b.fail(r.Name, "nics", "affinity nic: same shares NICs among lab nodes, and a whole NIC goes to one: "+
				"ask for vfs")
			return true
		}
	}
	return false
}
