package device

import (
	"context"
	"time"

	"github.com/rackless/rackless/host/change"
)

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
	deadline := time.NewTimer(k.patience)
	defer deadline.Stop()
	for {
		if ok, err := test(); ok || err != nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-deadline.C:
			return test()
		case <-time.After(pause):
		}
	}
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
