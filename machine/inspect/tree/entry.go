package tree

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/words"
)

// An Entry is a part of an archive to write.
type Entry struct {
	Name   string
	Mode   fs.FileMode // type bits; 0 for a file
	Data   []byte      // of a file
	Target string      // of a link

	// Omitted entries were seen but neither read nor listed; reading them returns ErrNotRecorded.
	Omitted bool
	// Err is from reading the entry. Hidden means that even Lstat failed.
	Err    error
	Hidden bool
}

type notRecorded struct{}

func (notRecorded) Error() string { return "not recorded: nobody read it when the archive was made" }

func (notRecorded) Is(target error) bool { return target == fs.ErrNotExist }

// ErrNotRecorded is for an entry whose content was not recorded. It is also an fs.ErrNotExist.
var ErrNotRecorded error = notRecorded{}

// Entries that were not recorded must not look empty: an empty file without permissions, and a directory with the
// sticky bit that only its owner may list, which other tools do not capture.
const (
	modeRead     = 0o644
	modeUnread   = 0o200
	modeListed   = 0o755
	modeUnlisted = 0o1711
)

// In pax, a vendor's own keys are in capitals.
const (
	paxError  = "RACKLESS.error"  // as in ErrorName
	paxHidden = "RACKLESS.hidden" // "1"
)

// WriteTar writes entries in the given order, without times and owners: the same entries give the same bytes.
func WriteTar(w io.Writer, entries []Entry) error {
	tw := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Mode: modeRead}
		var data []byte
		switch {
		case e.Mode.IsDir():
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, e.Name+"/", modeListed
			if e.Omitted || e.Err != nil {
				h.Mode = modeUnlisted
			}
		case e.Mode&fs.ModeSymlink != 0 && e.Err == nil && e.Target != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Target, 0o777
		case e.Omitted || e.Err != nil || !e.Mode.IsRegular():
			h.Mode = modeUnread // also for devices, so that unpacking makes none
		default:
			data = e.Data
			h.Size = int64(len(data))
		}
		if e.Err != nil {
			h.PAXRecords = map[string]string{paxError: ErrorName(e.Err)}
			if e.Hidden {
				h.PAXRecords[paxHidden] = "1"
			}
			h.Format = tar.FormatPAX
		}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("write %q: %w", clip(e.Name), err)
		}
		if _, err := tw.Write(data); err != nil {
			return fmt.Errorf("write %q: %w", clip(e.Name), err)
		}
	}
	return tw.Close()
}

// Add adds entries, as if read from WriteTar's archive.
func (b *Builder) Add(entries ...Entry) error {
	for _, e := range entries {
		if err := b.add(e); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) add(e Entry) error {
	err := e.Err
	if err == nil && (e.Omitted || e.Mode&(fs.ModeDir|fs.ModeSymlink) == 0 && !e.Mode.IsRegular()) {
		err = ErrNotRecorded
	}
	switch {
	case e.Hidden:
		return b.Hidden(e.Name, e.Err)
	case e.Mode&fs.ModeSymlink != 0 && e.Err == nil && e.Target != "":
		return b.Link(e.Name, e.Target)
	case err != nil && !e.Mode.IsDir():
		return b.Unreadable(e.Name, 0, err)
	case err != nil:
		return b.Unreadable(e.Name, fs.ModeDir, err)
	case e.Mode.IsDir():
		return b.Dir(e.Name)
	}
	return b.File(e.Name, e.Data)
}

// Load adds another tree, such as an unpacked archive. It interprets modes as ReadArchive does. Recorded read errors
// are lost, because tar does not unpack them.
func (b *Builder) Load(fsys fs.FS) error {
	return fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := Entry{Name: name, Mode: info.Mode()}
		switch {
		case info.IsDir():
			e.Omitted = info.Mode()&fs.ModeSticky != 0
		case info.Mode()&fs.ModeSymlink != 0:
			if e.Target, err = fs.ReadLink(fsys, name); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			if e.Omitted = info.Size() == 0 && info.Mode().Perm() == modeUnread; !e.Omitted {
				if e.Data, err = Bytes(fsys, name); err != nil {
					return err
				}
			}
		}
		return b.add(e)
	})
}

// ErrorName returns a read error as one line for ErrorOf: "EACCES" for an error of the kernel, whose numbers differ
// between architectures, and the text of any other.
func ErrorName(err error) string {
	err = cause(err)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if name := errnoName(errno); name != "" {
			return name
		}
	}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	return words.OneLine(err.Error())
}

// Each error matches at most one of the sentinels.
var sentinels = map[string]error{"not-exist": fs.ErrNotExist, "permission": fs.ErrPermission, "invalid": fs.ErrInvalid}

// ErrorOf returns the error for a name from ErrorName: the same errno or error of package fs, or the same text.
func ErrorOf(name string) error {
	name = words.OneLine(name) // results of ErrorName have no other white space
	if errno, ok := errnos()[name]; ok {
		return errno
	}
	if err, ok := sentinels[name]; ok {
		return err
	}
	name = cmp.Or(name, "unknown error")
	return errors.New(name)
}

var errnos = sync.OnceValue(func() map[string]syscall.Errno {
	const last = 4095 // MAX_ERRNO of the kernel
	out := make(map[string]syscall.Errno)
	for e := firstErrno; e <= firstErrno+last; e++ {
		if name := errnoName(e); name != "" {
			out[name] = e
		}
	}
	return out
})

// cause strips operation and name, which belong to an inner step.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
