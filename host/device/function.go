package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/machine/topology"
)

// Where the kernel shows PCI functions and their drivers. Source: Documentation/ABI/testing/sysfs-bus-pci of Linux.
const (
	pciDevices = "/sys/bus/pci/devices"
	pciDrivers = "/sys/bus/pci/drivers"
	// driversProbe takes the address of a function that the driver in its override, or any, may take.
	driversProbe = "/sys/bus/pci/drivers_probe"
	vfioPCI      = "vfio-pci"
)

// A function is a PCI function as sysfs shows it now.
type function struct {
	s *change.System
	k *kernel
	a topology.PCIAddr
}

func (f function) path(name string) string { return pciDevices + "/" + f.a.String() + "/" + name }

func (f function) there() bool { return f.s.Exists(pciDevices + "/" + f.a.String()) }

// driver returns the driver that the function is bound to; "" where there is none.
func (f function) driver() (string, error) { return f.s.LinkName(f.path("driver")) }

// group returns the number of the IOMMU group; "" where the function is in none.
func (f function) group() (string, error) { return f.s.LinkName(f.path("iommu_group")) }

// override returns the only driver that may take the function; "" where any may.
func (f function) override() (string, error) {
	text, err := f.s.ValueOr(f.path("driver_override"), "")
	if text == "(null)" {
		return "", nil
	}
	return text, err
}

// optional reads a file that not every function has; nil where there is none.
func (f function) optional(name string) (*string, error) {
	text, err := f.s.Value(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &text, nil
}

// setOptional gives a value to a file that not every function has.
func (f function) setOptional(name, value string) error {
	if now, err := f.optional(name); err != nil || now == nil || *now == value {
		return err
	}
	return f.k.write(f.s, f.path(name), value)
}

// number reads a count; 0 where the kernel has no such file, as functions without SR-IOV have no sriov_numvfs.
func (f function) number(name string) (int, error) {
	n, err := f.s.Number(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return int(n), err
}

// An identity is what a card says it is. The zero value is not known.
type identity struct {
	Vendor *topology.ID16 `json:"vendor,omitempty"`
	Device *topology.ID16 `json:"device,omitempty"`
}

func (i identity) String() string {
	if i.Vendor == nil || i.Device == nil {
		return "an unknown card"
	}
	return fmt.Sprintf("%04x:%04x", uint16(*i.Vendor), uint16(*i.Device))
}

// check returns an error where another card is at the address than the plan was made for. Addresses
// move when a card is added or taken out.
func (f function) check(want identity) error {
	if !f.there() {
		return fmt.Errorf("%s is not there: %w; put the card back, or make a new plan (rackless plan)", f.a,
			fs.ErrNotExist)
	}
	if want.Vendor == nil || want.Device == nil {
		return nil
	}
	var have identity
	for name, id := range map[string]**topology.ID16{"vendor": &have.Vendor, "device": &have.Device} {
		text, err := f.s.Value(f.path(name))
		if err != nil {
			return err
		}
		v, err := topology.ParseID16(text)
		if err != nil {
			return fmt.Errorf("%s: %w", f.path(name), err)
		}
		*id = &v
	}
	if *have.Vendor != *want.Vendor || *have.Device != *want.Device {
		return fmt.Errorf("%s is %s, and was %s when the plan was made: cards have been moved; make a new plan "+
			"(rackless plan)", f.a, have, want)
	}
	return nil
}

// setOverride names the only driver that may take the function, or lifts that where it is "", and
// looks whether it took.
func (f function) setOverride(driver string) error {
	now, err := f.override()
	if err != nil || now == driver {
		return err
	}
	// An empty write never reaches the kernel's driver; a newline alone does, and lifts the override.
	value := cmp.Or(driver, "\n")
	if err := f.k.write(f.s, f.path("driver_override"), value); err != nil {
		return err
	}
	now, err = f.override()
	if err == nil && now != driver {
		err = fmt.Errorf("%s: %q was written and reads back as %q", f.path("driver_override"), driver, now)
	}
	return err
}

// unbind takes the function from its driver, if it has one. The link to the driver is what counts, and not whether the
// write went well: somebody else may do the same at that moment.
func (f function) unbind(ctx context.Context) error {
	driver, err := f.driver()
	if err != nil || driver == "" {
		return err
	}
	if err := f.k.write(f.s, pciDrivers+"/"+driver+"/unbind", f.a.String()); err != nil {
		// Somebody else may have been quicker (ENODEV).
		if now, readErr := f.driver(); readErr != nil || now != "" {
			return err
		}
	}
	free, err := f.k.wait(ctx, func() (bool, error) {
		now, err := f.driver()
		return now == "", err
	})
	if err == nil && !free {
		err = fmt.Errorf("%s stays with %s: something uses it; the end of dmesg may say what", f.a, driver)
	}
	return err
}

// bind gives the function to a driver, whose module it loads if need be. A write to "bind" fails if the driver has the
// function already, as that of a module does which was just loaded: so the link to the driver is read before and after.
func (f function) bind(ctx context.Context, driver string) error {
	bound := func() (bool, error) {
		now, err := f.driver()
		return now == driver, err
	}
	if err := f.load(ctx, driver); err != nil {
		return err
	}
	// A module that was just loaded may have taken it already.
	if ok, err := bound(); ok || err != nil {
		return err
	}
	writeErr := f.k.write(f.s, pciDrivers+"/"+driver+"/bind", f.a.String())
	if ok, err := bound(); ok || err != nil {
		return err
	}
	if writeErr != nil {
		return fmt.Errorf("%s does not go to %s: %w; see the end of dmesg", f.a, driver, writeErr)
	}
	ok, err := f.k.wait(ctx, bound)
	if err == nil && !ok {
		now, _ := f.driver()
		err = fmt.Errorf("%s does not go to %s, and is with %s: see the end of dmesg", f.a, driver, orNone(now))
	}
	return err
}

func orNone(driver string) string { return cmp.Or(driver, "no driver") }

// load makes sure that the kernel has a driver. Drivers are usually named like their modules; where
// one is not (xhci_hcd is in xhci_pci) the function's alias, by which it is loaded at boot, leads
// to it.
func (f function) load(ctx context.Context, driver string) error {
	if f.s.Exists(pciDrivers + "/" + driver) {
		return nil
	}
	_, first := f.s.Program(ctx, "modprobe", "--", driver)
	if f.s.Exists(pciDrivers + "/" + driver) {
		return nil
	}
	alias, err := f.s.Value(f.path("modalias"))
	if err != nil {
		return errors.Join(first, err)
	}
	_, second := f.s.Program(ctx, "modprobe", "-b", "--", alias)
	if f.s.Exists(pciDrivers + "/" + driver) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s needs driver %s, which is not there and was not loaded by modprobe: install "+
		"or load it", f.a, driver), first, second)
}

// vfioFile returns the file through which the function's IOMMU group is used.
func (f function) vfioFile() (string, error) {
	group, err := f.group()
	if err != nil || group == "" {
		return "", err
	}
	return "/dev/vfio/" + group, nil
}

// giveToVFIO hands the function to vfio-pci: the override first, so that from then on no other
// driver can take it, whoever loads one. Where that fails, the function goes back to the driver
// that it had at the start.
func (f function) giveToVFIO(ctx context.Context) error {
	was, err1 := f.driver()
	overrideWas, err2 := f.override()
	if err := errors.Join(err1, err2); err != nil || was == vfioPCI {
		return err
	}
	if err := f.toVFIO(ctx); err != nil {
		return errors.Join(err, f.backTo(ctx, was, overrideWas))
	}
	return nil
}

func (f function) toVFIO(ctx context.Context) error {
	if err := f.setOverride(vfioPCI); err != nil {
		return err
	}
	if err := f.unbind(ctx); err != nil {
		return err
	}
	if err := f.bind(ctx, vfioPCI); err != nil {
		return err
	}
	file, err := f.vfioFile()
	if err != nil {
		return err
	}
	if file == "" {
		return fmt.Errorf("%s is with vfio-pci and in no IOMMU group: %s", f.a, fixIOMMU)
	}
	ok, err := f.k.wait(ctx, func() (bool, error) { return f.s.Exists(file), nil })
	if err == nil && !ok {
		err = fmt.Errorf("%s is with vfio-pci, and %s does not appear: see the end of dmesg", f.a, file)
	}
	return err
}

// backTo brings a driver and an override back, "" being none. While the driver is bound, the
// override names it, so that no other takes the function.
func (f function) backTo(ctx context.Context, driver, override string) error {
	now, err := f.driver()
	if err != nil {
		return err
	}
	if now != driver {
		if now == vfioPCI {
			if err := f.released(); err != nil {
				return err
			}
		}
		// Without a driver of before, the override stays until nothing has the function any more.
		if driver != "" {
			if err := f.setOverride(driver); err != nil {
				return err
			}
		}
		if err := f.unbind(ctx); err != nil {
			return err
		}
		if driver != "" {
			if err := f.bind(ctx, driver); err != nil {
				return err
			}
		}
	}
	return f.setOverride(override)
}

// released returns an error while a process has the function's group open: the kernel would wait
// for its end, and whoever took the function away would hang with it.
func (f function) released() error {
	files, err := f.deviceFiles()
	if err != nil {
		return err
	}
	users, err := openers(f.s, files)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("%s is in use: %s; end that first, a guest by shutting it down", f.a,
			strings.Join(users, ", "))
	}
	return nil
}

// idle returns an error while somebody uses the function: a process, or the host as a network device with addresses.
func (f function) idle(ctx context.Context) error {
	if err := f.released(); err != nil {
		return err
	}
	carries, err := f.carries(ctx)
	if err == nil && carries != "" {
		err = fmt.Errorf("%s is in use: %s; take that from it first", f.a, carries)
	}
	return err
}

// virtual returns the virtual functions that exist, by index.
func (f function) virtual() ([]topology.PCIAddr, error) {
	n, err := f.number("sriov_numvfs")
	if err != nil {
		return nil, err
	}
	out := make([]topology.PCIAddr, 0, n)
	for i := range n {
		a, err := f.vf(i)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// vf returns the address of a virtual function.
func (f function) vf(index int) (topology.PCIAddr, error) {
	name, err := f.s.LinkName(f.path("virtfn" + strconv.Itoa(index)))
	if err != nil {
		return topology.PCIAddr{}, err
	}
	if name == "" {
		return topology.PCIAddr{}, fmt.Errorf("%s has no virtual function %d: %w", f.a, index, fs.ErrNotExist)
	}
	return topology.ParsePCIAddr(name)
}

// netdevs returns the network devices of the function, sorted. Those of virtio and of subfunctions are one level
// further down.
func (f function) netdevs() ([]string, error) {
	r := reader{s: f.s}
	all := r.list(f.path("net"))
	for _, name := range r.list(f.path("")) {
		if strings.HasPrefix(name, "virtio") || strings.Contains(name, ".sf.") {
			all = append(all, r.list(f.path(name+"/net"))...)
		}
	}
	return all, r.err
}

// port returns the network device of a physical function, not those that stand for its virtual ones
// (phys_port_name "pf0vf3") or subfunctions; "" where there is none.
func (f function) port() (string, error) {
	names, err := f.netdevs()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		// Devices without the notion answer with an error (EOPNOTSUPP).
		physical, err := f.s.Value("/sys/class/net/" + name + "/phys_port_name")
		if err == nil && (strings.Contains(physical, "vf") || strings.Contains(physical, "sf")) {
			continue
		}
		return name, nil
	}
	return "", nil
}

const fixIOMMU = "switch VT-d or AMD-Vi on in the machine's firmware, and the IOMMU in the kernel (rackless plan " +
	"shows the arguments)"

// alone is for a function that goes to a guest without any other.
func alone(topology.PCIAddr) bool { return false }

// viable returns an error where the function's IOMMU group has functions that the host uses and
// that ours does not name: VFIO takes a group whole or not at all ("group N is not viable").
// Bridges count where their driver is not one of those that leave memory alone: since Linux 5.19
// that is what the kernel asks (driver_managed_dma), and before it asked less.
func (f function) viable(ours func(topology.PCIAddr) bool) error {
	group, err := f.group()
	if err != nil {
		return err
	}
	if group == "" {
		return fmt.Errorf("%s is in no IOMMU group: %s", f.a, fixIOMMU)
	}
	members, err := f.s.List(f.path("iommu_group/devices"))
	if err != nil {
		return err
	}
	for _, name := range members {
		a, err := topology.ParsePCIAddr(name)
		if err != nil {
			return fmt.Errorf("IOMMU group %s of %s also has %q, which is not on PCI: it cannot be given to a guest",
				group, f.a, name)
		}
		if a == f.a || ours(a) {
			continue
		}
		member := function{f.s, f.k, a}
		driver, err1 := member.driver()
		class, err2 := member.class()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{"", vfioPCI, "pci-stub"}, driver),
			class.Sub() == topology.SubPCIBridge && driver == "pcieport":
			continue
		case class.Base() == topology.ClassBridge:
			return fmt.Errorf("IOMMU group %s of %s also has bridge %s, which driver %s uses: the kernel does not "+
				"give such a group away; move the card to another slot", group, f.a, a, driver)
		}
		return fmt.Errorf("IOMMU group %s of %s also has %s, which the host uses with driver %s: a group goes to a "+
			"guest whole or not at all; give both away, or move one to another slot", group, f.a, a, driver)
	}
	return nil
}

// lastFunction returns the last PCI address in a path below /sys/devices: the function that what
// the path names belongs to.
func lastFunction(path string) (topology.PCIAddr, bool) {
	for path != "/" && path != "." {
		name := filepath.Base(path)
		if a, err := topology.ParsePCIAddr(name); err == nil && strings.Count(name, ":") == 2 {
			return a, true
		}
		path = filepath.Dir(path)
	}
	return topology.PCIAddr{}, false
}

// A kernel is how ops reach the kernel, beside the files that a change.System shows: tests put a
// simulated one in its place.
type kernel struct {
	net Network
	// write writes to a file that the kernel made.
	write func(s *change.System, path, value string) error
	// patience is how long the kernel may take to bind a driver or to make a device file.
	patience time.Duration
}

// patience covers the slowest drivers that are known: mlx5_core and nvidia take seconds to bind
// where the card's firmware is busy.
const patience = 30 * time.Second

func realKernel() *kernel {
	return &kernel{net: netlinkNetwork{}, write: (*change.System).WriteValue, patience: patience}
}

// orReal returns the kernel itself, or the real one for an op that was made as a literal.
func (k *kernel) orReal() *kernel {
	if k == nil {
		return realKernel()
	}
	return k
}

// wait repeats a test until it is true, for as long as the kernel may take. It reports how the last one came out.
func (k *kernel) wait(ctx context.Context, test func() (bool, error)) (bool, error) {
	const pause = 10 * time.Millisecond
	limited, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	err := wait.Until(limited, pause, test)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return test()
	}
	return err == nil, err
}

// Kinds returns the ops of this package by kind, to read journals with.
func Kinds() change.Kinds { return kindsWith(realKernel()) }

func kindsWith(k *kernel) change.Kinds {
	return change.Kinds{
		kindModule:    func() change.Op { return &Module{} },
		kindDriver:    func() change.Op { return &Driver{k: k} },
		kindDriverctl: func() change.Op { return &Driverctl{} },
		kindSRIOV:     func() change.Op { return &SRIOV{k: k} },
		kindLink:      func() change.Op { return &Link{k: k} },
		kindFirmware:  func() change.Op { return &FirmwareSetting{} },
	}
}

// The kinds of ops, as journals name them.
const (
	kindModule    = "module"
	kindDriver    = "pci-driver"
	kindDriverctl = "driverctl"
	kindSRIOV     = "sriov"
	kindLink      = "pf-link"
	kindFirmware  = "nic-firmware"
)
