package fabric

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rackless/rackless/internal/atomicfile"
)

// CaptureFile opens the file of a capture. An existing one is an error, or with force it is replaced. end closes the
// file; with remove the capture has failed, and an earlier one stays.
func CaptureFile(name string, force bool) (w io.Writer, end func(remove bool) error, err error) {
	// An existing capture is replaced only once the new one has a packet: until then it lies beside it.
	if force {
		file, err := atomicfile.Create(name, 0o644)
		if err != nil {
			return nil, nil, err
		}
		return file, func(remove bool) error {
			if remove {
				return file.Discard()
			}
			return file.Commit()
		}, nil
	}
	// O_EXCL, so that another capture that starts at the same time is not overwritten.
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, fmt.Errorf("%s exists: --force overwrites it, -o names another", name)
	}
	if err != nil {
		return nil, nil, err
	}
	return file, func(remove bool) error {
		err := file.Close()
		if remove {
			err = errors.Join(err, os.Remove(name))
		}
		return err
	}, nil
}
