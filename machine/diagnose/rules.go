package diagnose

import (
	"cmp"
	"iter"
	"slices"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A rule finds the fault of the check with its ID. It sets Title, Severity, Consequence and Fix only if they differ
// from the check's.
type rule struct {
	id   string
	find func(v *view, add func(finding.Finding))
}

// forEach makes a rule of a function that judges one thing.
func forEach[T any](list func(*view) iter.Seq[T], judge func(*view, T, func(finding.Finding))) func(*view,
	func(finding.Finding)) {
	return func(v *view, add func(finding.Finding)) {
		for x := range list(v) {
			judge(v, x, add)
		}
	}
}

// resettable and the others are lists for rules; see the methods.
func resettable(v *view) iter.Seq[*topology.PCIDevice] { return slices.Values(v.resettable()) }
func links(v *view) iter.Seq[checkedLink]              { return slices.Values(v.links()) }
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

// rules is a function, so that no code can add rules at run time.
func rules() []rule {
	return []rule{
		{"RL001", forEach(links, slotLimited)},
		{"RL002", forEach(links, narrowLink)},
		{"RL003", forEach(links, slowLink)},
		{"RL004", forEach(links, sleepyLink)},
		{"RL005", narrowSwitch},
		{"RL006", forEach(links, portsExceedLink)},
		{"RL010", unknownNode},
		{"RL011", farNIC},
		{"RL012", otherRoot},
		{"RL013", slowNIC},
		{"RL014", contradicted},
		{"RL015", socketsOneNode},
		{"RL020", iommuOff},
		{"RL021", forEach(groups, sharedGroup)},
		{"RL022", forEach(groups, notViable)},
		{"RL023", acsRedirect},
		{"RL024", acsOverride},
		{"RL025", forEach(groups, reservedRegions)},
		{"RL026", redirectedGuest},
		{"RL027", listedGroups},
		{"RL030", forEach(resettable, noReset)},
		{"RL031", forEach(resettable, busResetOnly)},
		{"RL032", forEach(devices, dead)},
		{"RL033", forEach(devices, coldDevice)},
		{"RL034", forEach(devices, tooManyVFs)},
		{"RL035", forEach(devices, noVFs)},
		{"RL036", forEach(devices, lostOverride)},
		{"RL037", forEach(tenants, largeBARs)},
		{"RL038", forEach(fabric, parameterVFs)},
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
		{"RL060", forEach(tenantPairs, sharedCPUs)},
		{"RL061", floatsIsolated},
		{"RL062", forEach(tenants, pinnedOffline)},
		{"RL063", forEach(tenants, someUnpinned)},
		{"RL064", forEach(tenants, emulatorShares)},
		{"RL065", forEach(tenantPairs, sharedCores)},
		{"RL066", forEach(tenants, tornSiblings)},
		{"RL067", forEach(tenants, flatNUMA)},
		{"RL068", forEach(tenants, fewCPUs)},
		{"RL069", forEach(tenants, hiddenSiblings)},
		{"RL070", forEach(tenants, nodesTooSmall)},
		{"RL071", forEach(tenants, farMemory)},
		{"RL072", forEach(tenants, farDevice)},
		{"RL073", forEach(tenants, fewPagesLeft)},
		{"RL074", sharedDevice},
		{"RL075", takesHostDevice},
		{"RL076", forEach(gpus, heldGPU)},
		{"RL077", forEach(tenants, flatTree)},
		{"RL078", forEach(tenants, missingDevice)},
		{"RL079", forEach(tenants, partOfGroup)},
		{"RL080", forEach(bonds, oneLink)},
		{"RL081", forEach(bonds, unequalMembers)},
		{"RL082", smallMTU},
		{"RL083", forEach(fabric, oneCPU)},
		{"RL084", forEach(fabric, farInterrupts)},
		{"RL085", onlyNIC},
		{"RL086", forEach(bonds, rdmaOffBond)},
		{"RL087", forEach(tenants, devicesApart)},
		{"RL088", forEach(tenants, mixedCores)},
		{"RL090", forEach(rdmaPorts, onlyV1)},
		{"RL091", forEach(rdmaPorts, noRoutableGID)},
		{"RL092", forEach(rdmaPorts, portDown)},
		{"RL093", forEach(rdmaPorts, noSubnetManager)},
		{"RL094", zeroGUID},
		{"RL095", portErrors},
		{"RL096", noPeerMemory},
		{"RL097", forEach(rdmaPorts, fewLanes)},
		{"RL098", functionsDown},
		{"RL099", lossyRoCE},
		{"RL100", forEach(gpus, smallBAR)},
		{"RL101", forEach(gpus, pictureDriver)},
		{"RL102", forEach(gpus, splitGPU)},
		{"RL103", consoleGPU},
		{"RL104", noPeers},
		{"RL105", withoutNVLink},
		{"RL106", forEach(gpus, noAtomics)},
		{"RL107", forEach(devices, withoutAddress)},
		{"RL108", writesOnly},
		{"RL120", kernelSays("RL120")},
		{"RL121", kernelSays("RL121")},
		{"RL122", kernelSays("RL122")},
		{"RL123", kernelSays("RL123")},
		{"RL124", kernelSays("RL124")},
		{"RL125", kernelSays("RL125")},
		{"RL126", kernelSays("RL126")},
		{"RL127", kernelSays("RL127")},
		{"RL128", kernelSays("RL128")},
		{"RL129", kernelSays("RL129")},
	}
}

// Host returns the findings on h, worst first, then by ID and subject, or nil. h should have been completed
// (topology.Host.Complete); Host does not change it.
func Host(h *topology.Host) []finding.Finding {
	v := newView(h)
	// Rules do not depend on each other.
	var out []finding.Finding
	for _, r := range rules() {
		r.find(v, func(f finding.Finding) {
			check, _ := finding.Find(r.id) // guaranteed by a test
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

// Tenant returns the findings that t would add to h, including those on several tenants.
func Tenant(h *topology.Host, t topology.Tenant) []finding.Finding {
	with := *h
	with.Tenants = append(slices.Clone(h.Tenants), t)
	without := Host(h)
	return slices.DeleteFunc(Host(&with), func(f finding.Finding) bool { return slices.Contains(without, f) })
}
