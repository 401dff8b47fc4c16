package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/vm"
)

// An archive of images is a zstd-compressed tar file: the index, an optional signature, and the files in the order of
// the index, named by their SHA-256. Trust in the index covers everything.
const (
	indexName     = "index.json"
	signatureName = "index.json.sig"
	blobDir       = "sha256/"
)

// The archive is foreign.
const (
	maxIndex       = 4 << 20
	maxArchiveFile = 32 << 30
	maxWindow      = 128 << 20 // zstd window, in memory
)

type archiveIndex struct {
	Format int      `json:"format"`
	Arch   string   `json:"arch"` // as in Go
	Images []*Image `json:"images"`
}

// A Trust accepts archives whose index has the digest, or is signed with the key. One must be set.
type Trust struct {
	Digest string // "sha256:" and hexadecimal digits
	Key    ed25519.PublicKey
}

func (t Trust) verify(index, signature []byte) error {
	switch have := digestOf(index); {
	case t.Digest == "" && t.Key == nil:
		return errors.New("nothing says whether to believe the archive: give its digest or the public key of its maker")
	case t.Digest != "" && t.Digest != have:
		return fmt.Errorf("its digest is %s, and not %s", have, t.Digest)
	case t.Key != nil && signature == nil:
		return errors.New("it is not signed")
	case t.Key != nil && !ed25519.Verify(t.Key, index, signature):
		return errors.New("its signature is not by this key")
	}
	return nil
}

func digestOf(index []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(index))
}

// Export writes an archive for hosts of an architecture and returns its digest. The archive is signed if key is set.
func Export(ctx context.Context, w io.Writer, host string, images []*Image, key ed25519.PrivateKey) (digest string,
	err error) {
	x := archiveIndex{Format: 1, Arch: host}
	for _, img := range images {
		made := *img
		made.Imported = false // so that the archive equals the original's
		x.Images = append(x.Images, &made)
	}
	index, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return "", err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return "", err
	}
	t := tar.NewWriter(z)
	add := func(name string, size int64, r io.Reader) {
		if err != nil {
			return
		}
		err = t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0)})
		if err == nil {
			_, err = io.Copy(t, untilDone{ctx, r})
		}
	}
	add(indexName, int64(len(index)), bytes.NewReader(index))
	if key != nil {
		add(signatureName, ed25519.SignatureSize, bytes.NewReader(ed25519.Sign(key, index)))
	}
	for _, img := range images {
		for _, s := range img.Sums {
			f, openErr := os.Open(filepath.Join(img.Dir, s.Name))
			if openErr != nil {
				return "", openErr
			}
			add(blobDir+s.SHA256, s.Size, f)
			f.Close()
		}
	}
	return digestOf(index), errors.Join(err, t.Close(), z.Close())
}

// Import adds the images of an archive that the cache lacks, each only after checking all its files.
func Import(ctx context.Context, r io.Reader, o Options, trust Trust) ([]*Image, error) {
	z, err := zstd.NewReader(untilDone{ctx, r}, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, unusable(err)
	}
	if err := vm.Sweep(o.Cache, buildPrefix); err != nil {
		return nil, unusable(err)
	}
	images, err := importTar(ctx, tar.NewReader(z), o, trust.verify)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case isNoSpace(err):
		err = fmt.Errorf("%w; make room in %s, or set RACKLESS_CACHE to a directory with more space", err, o.Cache)
	}
	return images, err
}

type verification func(index, signature []byte) error

func importTar(ctx context.Context, t *tar.Reader, o Options, verify verification) (images []*Image, err error) {
	index, next, err := readIndex(t, verify)
	if err != nil {
		return nil, err
	}
	in := archiveReader{t, next}
	for _, img := range index.Images {
		img, err := in.image(ctx, o, img)
		if err != nil {
			return images, err
		}
		images = append(images, img)
	}
	if in.next != nil {
		return images, fmt.Errorf("it has %.80q, which is not in its index", in.next.Name)
	}
	return images, nil
}

// readIndex also returns the header after the index and its signature, or nil at the end.
func readIndex(t *tar.Reader, verify verification) (index archiveIndex, next *tar.Header, err error) {
	small := func(name string, limit int64) ([]byte, error) {
		if next.Name != name || next.Typeflag != tar.TypeReg || next.Size > limit {
			return nil, errors.New("not an archive of images: rackless image export makes one")
		}
		return io.ReadAll(io.LimitReader(t, limit))
	}
	if next, err = t.Next(); err != nil {
		return index, nil, fmt.Errorf("not an archive of images: %w", err)
	}
	text, err := small(indexName, maxIndex)
	if err != nil {
		return index, nil, err
	}
	var signature []byte
	if next, err = nextHeader(t); err == nil && next != nil && next.Name == signatureName {
		if signature, err = small(signatureName, ed25519.SignatureSize); err == nil {
			next, err = nextHeader(t)
		}
	}
	if err != nil {
		return index, nil, err
	}
	if err := verify(text, signature); err != nil {
		return index, nil, fmt.Errorf("the archive is not believed: %w: take file and digest from one release", err)
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return index, nil, fmt.Errorf("%s: %w", indexName, err)
	}
	return index, next, index.check()
}

func nextHeader(t *tar.Reader) (*tar.Header, error) {
	h, err := t.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the archive is damaged: get it again", err)
	}
	return h, nil
}

var fileName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$`)

var sha256Hex = lazyregexp.New(`^[0-9a-f]{64}$`)

// check refuses images that this machine cannot use, or could not tell apart.
func (x archiveIndex) check() error {
	if x.Format != 1 || x.Arch != runtime.GOARCH || len(x.Images) == 0 {
		return fmt.Errorf("the archive has %d images for %s in format %d, and this rackless takes those for %s in "+
			"format 1", len(x.Images), x.Arch, x.Format, runtime.GOARCH)
	}
	for _, img := range x.Images {
		if img == nil || img.Key == "" || img.Key != img.Recipe.Key() || !portable(img.Name) {
			return fmt.Errorf("%s: an image of another version of rackless, or of a kind that is not exchanged",
				indexName)
		}
		seen := []string{manifestName}
		for _, s := range img.Sums {
			if !fileName().MatchString(s.Name) || slices.Contains(seen, s.Name) || !sha256Hex().MatchString(s.SHA256) ||
				s.Size < 0 || s.Size > maxArchiveFile {
				return fmt.Errorf("%s: image %s has a file %.80q of %d bytes, which is not taken", indexName, img.Key,
					s.Name, s.Size)
			}
			seen = append(seen, s.Name)
		}
		have, want := seen[1:], img.files()
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			return fmt.Errorf("%s: image %s has the files %q, and needs %q", indexName, img.Key, have, want)
		}
	}
	return nil
}

// portable reports whether images of a kind run on other machines.
func portable(name string) bool {
	return name == QEMU.name || name == Node.name || slices.Contains(FullNames(), name)
}

type archiveReader struct {
	tar  *tar.Reader
	next *tar.Header // nil at the end
}

func (r *archiveReader) image(ctx context.Context, o Options, img *Image) (*Image, error) {
	e := at(o.Cache, img.Key)
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sums := img.Sums
	if have, err := e.open(ctx, img.Name); err == nil {
		for _, s := range sums {
			if err := r.file(s, io.Discard); err != nil {
				return nil, err
			}
		}
		return have, nil
	}
	img.Imported, img.Sums = true, nil
	return img, e.make(ctx, o, img, func(_ context.Context, o Options, _, out string, _ *Image) error {
		var mode fs.FileMode = 0o644
		if img.Name == QEMU.name {
			mode = 0o755
		}
		o.progress("take image %s (%s) from the archive", img.Key, img.Name)
		for _, s := range sums {
			f, err := os.OpenFile(filepath.Join(out, s.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
			if err != nil {
				return err
			}
			if err := errors.Join(r.file(s, f), f.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *archiveReader) file(want sum, to io.Writer) error {
	h := r.next
	if h == nil {
		return fmt.Errorf("the archive ends before %s: it was cut off: get it again", want.Name)
	}
	if h.Name != blobDir+want.SHA256 || h.Typeflag != tar.TypeReg || h.Size != want.Size {
		return fmt.Errorf("the archive has %.80q of %d bytes where %s is to be, of %d", h.Name, h.Size, want.Name,
			want.Size)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), r.tar)
	if _, local := errors.AsType[*fs.PathError](err); err != nil && !local {
		return fmt.Errorf("%s: %w: the archive is damaged: get it again", want.Name, err)
	} else if err != nil {
		return fmt.Errorf("%s: %w", want.Name, err)
	}
	if n != want.Size || hex.EncodeToString(sum.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("%s is not what the index says: the archive is damaged: get it again", want.Name)
	}
	r.next, err = nextHeader(r.tar)
	return err
}
