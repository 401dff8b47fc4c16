package libvirt

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rackless/rackless/plan/render"
)

// A Mark is in the metadata of rackless' domains.
type Mark struct {
	Lab  string
	Node string
	// Defined is the domain's document without comments. It is nil if somebody else defined a rendered file or changed
	// the mark.
	Defined []byte
}

// maxDefined limits metadata, which may be anybody's.
const maxDefined = 16 << 20

type identity struct {
	XMLName  xml.Name `xml:"domain"`
	Name     string   `xml:"name"`
	UUID     string   `xml:"uuid"`
	Metadata struct {
		Mark render.Mark `xml:"https://github.com/rackless/rackless/libvirt/1 node"`
	} `xml:"metadata"`
}

func (d *identity) mark() *render.Mark {
	if m := &d.Metadata.Mark; m.Lab != "" && m.Name != "" {
		return m
	}
	return nil
}

func parseDomain(text []byte) (Domain, error) {
	var d identity
	if err := xml.Unmarshal(text, &d); err != nil {
		return Domain{}, fmt.Errorf("read its XML: %w", err)
	}
	if d.Name == "" || d.UUID == "" {
		return Domain{}, errors.New("read its XML: no name or no UUID")
	}
	out := Domain{Name: d.Name, UUID: d.UUID}
	n := d.mark()
	if n == nil {
		return out, nil
	}
	out.Node = &Mark{Lab: n.Lab, Node: n.Name}
	if n.Defined != nil {
		// Otherwise it was tampered with, so the definition is unknown.
		if defined, err := unpackText(n.Defined.Packed); err == nil && digest(defined) == n.Defined.Digest {
			out.Node.Defined = defined
		}
	}
	return out, nil
}

// mark adds a domain's document without comments, packed, and its digest. libvirt preserves metadata, but neither the
// form nor the order of the rest, so only this can later show whether a domain is as wanted.
func mark(name string, text []byte) ([]byte, error) {
	plain, err := stripComments(text)
	if err != nil {
		return nil, err
	}
	var d identity
	if err := xml.Unmarshal(plain, &d); err != nil {
		return nil, fmt.Errorf("read domain XML: %w", err)
	}
	if d.Name != name {
		return nil, fmt.Errorf("its XML is of domain %q", d.Name)
	}
	n := d.mark()
	if n == nil {
		return nil, errors.New("its XML has no element of rackless in its metadata: it would be taken for " +
			"somebody else's")
	}
	if n.Defined != nil {
		return nil, errors.New("its XML says what it was defined with, which is for rackless to add")
	}
	packed, err := packText(plain)
	if err != nil {
		return nil, err
	}
	n.Defined = &render.Defined{Digest: digest(plain), Packed: packed}
	element, err := render.XML(n)
	if err != nil {
		return nil, err
	}
	from, to, err := findNode(plain)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{plain[:from], bytes.TrimSpace(element), plain[to:]}, nil), nil
}

func findNode(text []byte) (from, to int64, err error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		from = d.InputOffset()
		token, err := d.Token()
		if err != nil {
			return 0, 0, fmt.Errorf("no element of rackless: %w", err)
		}
		if t, ok := token.(xml.StartElement); ok && t.Name.Space == render.RacklessNamespace && t.Name.Local == "node" {
			err := d.Skip()
			return from, d.InputOffset(), err
		}
	}
}

func stripComments(text []byte) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	var out []byte
	for {
		before := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read domain XML: %w", err)
		}
		if _, comment := token.(xml.Comment); !comment {
			out = append(out, text[before:d.InputOffset()]...)
		}
	}
	var b bytes.Buffer
	// Lines left empty would make equivalent documents differ.
	for line := range bytes.Lines(out) {
		if len(bytes.TrimSpace(line)) > 0 {
			b.Write(line)
		}
	}
	return b.Bytes(), nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// packText keeps the output of "virsh dumpxml" small: 10 KB become 2.
func packText(text []byte) (string, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), err
}

func unpackText(packed string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(packed))
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxDefined+1))
	if err == nil && len(text) > maxDefined {
		err = fmt.Errorf("more than %d MiB", maxDefined>>20)
	}
	return text, err
}
