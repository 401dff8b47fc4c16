package diagnose

import (
	"cmp"
	"iter"
	"slices"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A rule finds what the check of its ID explains, see package finding. It sets no ID, and Title, Severity, Consequence
// and Fix only where they are not always those of the check.
type rule struct {
	id   string
	find func(v *view, add func(finding.Finding))
}

// per makes a rule of a function that judges one thing at a time: list says which things there are.
// Such a function returns as soon as its thing is in order. A rule that compares several things, or
// that makes one finding of all of them, walks them itself.
func per[T any](list func(*view) iter.Seq[T], judge func(*view, T, func(finding.Finding))) func(*view,
	func(finding.Finding)) {
	return func(v *view, add func(finding.Finding)) {
		for x := range list(v) {
			judge(v, x, add)
		}
	}
}

// The lists that rules judge. Links, ports and functions to reset are picked so that a finding on them is worth
// reading; see the methods that pick them.
func resettable(v *view) iter.Seq[*topology.PCIDevice] { return slices.Values(v.resettable()) }
func links(v *view) iter.Seq[judged]                   { return slices.Values(v.links()) }
func gpus(v *view) iter.Seq[*topology.GPU]             { return slices.Values(v.gpus) }
func fabric(v *view) iter.Seq[*topology.NIC]           { return slices.Values(v.fabric) }
func rdmaPorts(v *view) iter.Seq[rdmaPort]             { return slices.Values(v.rdmaPorts()) }

func devices(v *view) iter.Seq[*topology.PCIDevice] {
	return func(yield func(*topology.PCIDevice) bool) {
		for i := range v.PCI {
			if !yield(&v.PCI[i]) {
				return
			}
		}
	}
}

func groups(v *view) iter.Seq[*topology.IOMMUGroup] {
	return func(yield func(*topology.IOMMUGroup) bool) {
		for i := range v.IOMMU.Groups {
			if !yield(&v.IOMMU.Groups[i]) {
				return
			}
		}
	}
}

func bonds(v *view) iter.Seq[*topology.Bond] {
	return func(yield func(*topology.Bond) bool) {
		for i := range v.Bonds {
			if !yield(&v.Bonds[i]) {
				return
			}
		}
	}
}

func tenants(v *view) iter.Seq[*topology.Tenant] {
	return func(yield func(*topology.Tenant) bool) {
		for i := range v.Tenants {
			if !yield(&v.Tenants[i]) {
				return
			}
		}
	}
}

// rules returns every rule, by ID. It is a function, not a variable: nothing can be added to it at
// run time, and the order is written here.
func rules() []rule {
	return []rule{
		{"RL001", per(links, slotLimited)},
		{"RL002", per(links, narrowLink)},
		{"RL003", per(links, slowLink)},
		{"RL004", per(links, sleepyLink)},
		{"RL005", narrowSwitch},
		{"RL010", unknownNode},
		{"RL011", farNIC},
		{"RL012", otherRoot},
		{"RL013", slowNIC},
		{"RL014", contradicted},
		{"RL020", iommuOff},
		{"RL021", per(groups, sharedGroup)},
		{"RL022", per(groups, notViable)},
		{"RL023", acsRedirect},
		{"RL024", acsOverride},
		{"RL025", per(groups, reservedRegions)},
		{"RL026", redirectedGuest},
		{"RL027", listedGroups},
		{"RL030", per(resettable, noReset)},
		{"RL031", per(resettable, busResetOnly)},
		{"RL032", per(devices, dead)},
		{"RL033", per(devices, coldDevice)},
		{"RL034", per(devices, tooManyVFs)},
		{"RL035", per(devices, noVFs)},
		{"RL036", per(devices, lostOverride)},
		{"RL037", per(tenants, largeBARs)},
		{"RL040", fewerPages},
		{"RL041", noPool},
		{"RL042", pagesOnOneNode},
		{"RL043", bareNode},
		{"RL044", swapOn},
		{"RL045", balancing},
		{"RL046", alwaysTHP},
		{"RL047", ksmOn},
		{"RL050", splitCores},
		{"RL051", busyIsolated},
		{"RL052", notInForce},
		{"RL053", emptyList},
		{"RL054", governors},
		{"RL055", smtOff},
		{"RL056", longCmdline},
		{"RL057", ticklessOnly},
		{"RL060", per(tenantPairs, sharedCPUs)},
		{"RL061", floatsIsolated},
		{"RL062", per(tenants, pinnedOffline)},
		{"RL063", per(tenants, someUnpinned)},
		{"RL064", per(tenants, emulatorShares)},
		{"RL065", per(tenantPairs, sharedCores)},
		{"RL066", per(tenants, tornSiblings)},
		{"RL067", per(tenants, flatNUMA)},
		{"RL068", per(tenants, fewCPUs)},
		{"RL069", per(tenants, hiddenSiblings)},
		{"RL070", per(tenants, nodesTooSmall)},
		{"RL071", per(tenants, farMemory)},
		{"RL072", per(tenants, farDevice)},
		{"RL073", per(tenants, fewPagesLeft)},
		{"RL074", sharedDevice},
		{"RL075", takesHostDevice},
		{"RL076", per(gpus, heldGPU)},
		{"RL077", per(tenants, flatTree)},
		{"RL078", per(tenants, missingDevice)},
		{"RL079", per(tenants, partOfGroup)},
		{"RL080", per(bonds, oneLink)},
		{"RL081", per(bonds, unequalMembers)},
		{"RL082", smallMTU},
		{"RL083", per(fabric, oneCPU)},
		{"RL084", per(fabric, farInterrupts)},
		{"RL085", onlyNIC},
		{"RL086", per(bonds, rdmaOffBond)},
		{"RL087", per(tenants, devicesApart)},
		{"RL090", per(rdmaPorts, onlyV1)},
		{"RL091", per(rdmaPorts, noRoutableGID)},
		{"RL092", per(rdmaPorts, portDown)},
		{"RL093", per(rdmaPorts, noSubnetManager)},
		{"RL094", zeroGUID},
		{"RL095", portErrors},
		{"RL096", noPeerMemory},
		{"RL097", per(rdmaPorts, fewLanes)},
		{"RL100", per(gpus, smallBAR)},
		{"RL101", per(gpus, pictureDriver)},
		{"RL102", per(gpus, splitGPU)},
		{"RL103", consoleGPU},
		{"RL104", noPeers},
		{"RL105", withoutNVLink},
		{"RL106", per(gpus, noAtomics)},
		{"RL107", per(devices, withoutAddress)},
		{"RL108", writesOnly},
	}
}

// Host returns what is wrong with h, the worst first, then by ID and subject. It is nil when
// nothing is. h should have been completed (topology.Host.Complete); it is not changed.
func Host(h *topology.Host) []finding.Finding {
	v := newView(h)
	// Rules are independent of each other and of their order: finding.Sort decides what comes first.
	var out []finding.Finding
	for _, r := range rules() {
		r.find(v, func(f finding.Finding) {
			check, _ := finding.Find(r.id) // a test holds that there is one
			f.ID = r.id
			f.Title = cmp.Or(f.Title, check.Title)
			f.Severity = cmp.Or(f.Severity, check.Severities[0])
			f.Consequence = cmp.Or(f.Consequence, check.Consequence)
			f.Fix = cmp.Or(f.Fix, check.ShortFix)
			f.Evidence += v.origin()
			out = append(out, f)
		})
	}
	finding.Sort(out)
	return out
}

// Tenant returns what is wrong with h because of one more tenant: what Host finds with it and not without. Findings of
// several tenants are among them where it is one of those.
func Tenant(h *topology.Host, t topology.Tenant) []finding.Finding {
	with := *h
	with.Tenants = append(slices.Clone(h.Tenants), t)
	without := Host(h)
	return slices.DeleteFunc(Host(&with), func(f finding.Finding) bool { return slices.Contains(without, f) })
}
