package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"maps"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// A fioJob is a job of fio in its JSON. What text says is brought into the same form.
type fioJob struct {
	Name    string            `json:"jobname"`
	Group   int               `json:"groupid"`
	Error   int               `json:"error"`
	Options map[string]string `json:"job options"`
	Read    fioDirection      `json:"read"`
	Write   fioDirection      `json:"write"`
	Trim    fioDirection      `json:"trim"`
	why     string            // it ended with an error, where the text says
}

// A fioDirection is what a job read, wrote or trimmed.
type fioDirection struct {
	IOPS    float64    `json:"iops"`
	KiB     float64    `json:"bw"` // a second
	Bytes   float64    `json:"bw_bytes"`
	Lat     fioLatency `json:"lat_ns"`
	Clat    fioLatency `json:"clat_ns"`
	OldLat  fioLatency `json:"lat"` // in us, before release 3
	OldClat fioLatency `json:"clat"`
}

type fioLatency struct {
	Mean       float64            `json:"mean"`
	Percentile map[string]float64 `json:"percentile"`
}

// fioJSON finds fio's JSON behind warnings, which go to the same stream.
var fioJSON = lazyregexp.New(`(?m)^\{\s*"fio version"`)

// ParseFio reads what fio printed, as text or as JSON (json and json+), of releases 2 and 3; where it printed both the
// JSON counts. Each job is a test, and of a job that reads and writes each direction. The copies of a job (numjobs) are
// one test: rates are added, and of their latencies only the mean has a meaning.
func ParseFio(output []byte) (Tests, error) {
	var t Tests
	var jobs []fioJob
	var err error
	if at := fioJSON.FindIndex(output); at != nil {
		jobs, err = t.fioDocument(output[at[0]:])
	} else {
		jobs, err = t.fioText(output)
	}
	for err == nil && len(jobs) > 0 {
		job := jobs[0]
		copies := 1
		// Without group_reporting fio reports each copy of a job by itself, one after the other, under the name and the
		// group that all have.
		for copies < len(jobs) && jobs[copies].Name == job.Name && jobs[copies].Group == job.Group {
			job.Error = cmp.Or(job.Error, jobs[copies].Error)
			job.Read.join(jobs[copies].Read)
			job.Write.join(jobs[copies].Write)
			job.Trim.join(jobs[copies].Trim)
			copies++
		}
		t.fioTests(job, copies)
		jobs = jobs[copies:]
	}
	return t.checked(toolFio, output, err)
}

// fioDocument reads the JSON. Options of the file's global section hold for each job that has none of its own.
func (t *Tests) fioDocument(document []byte) ([]fioJob, error) {
	var d struct {
		Version   string            `json:"fio version"`
		Timestamp int64             `json:"timestamp"`
		Global    map[string]string `json:"global options"`
		Jobs      []fioJob          `json:"jobs"`
	}
	if err := json.NewDecoder(bytes.NewReader(document)).Decode(&d); err != nil {
		return nil, badResult(toolFio, "the JSON is cut off or has an unknown layout: %s", Shorten(err.Error()))
	}
	t.Version = strings.TrimPrefix(d.Version, "fio-")
	if d.Timestamp > 0 && d.Timestamp < yearTenThousand {
		t.Started = time.Unix(d.Timestamp, 0).UTC()
	}
	for job := range lists.Refs(d.Jobs) {
		for name, value := range d.Global {
			if _, own := job.Options[name]; !own && job.Options != nil {
				job.Options[name] = value
			}
		}
		for _, dir := range []*fioDirection{&job.Read, &job.Write, &job.Trim} {
			dir.Bytes = cmp.Or(dir.Bytes, 1024*dir.KiB)
			// Release 2 has microseconds, under other keys.
			if dir.Lat.Mean == 0 && dir.Clat.Mean == 0 {
				dir.Lat, dir.Clat = dir.OldLat.times(1e3), dir.OldClat.times(1e3)
			}
		}
	}
	return d.Jobs, nil
}

// times returns latencies in another unit.
func (l fioLatency) times(scale float64) fioLatency {
	l.Mean *= scale
	for name := range l.Percentile {
		l.Percentile[name] *= scale
	}
	return l
}

// join adds a copy of a job. Means are weighed by how many operations they are of.
func (d *fioDirection) join(o fioDirection) {
	if all := d.IOPS + o.IOPS; all > 0 {
		d.Lat.Mean = (d.Lat.Mean*d.IOPS + o.Lat.Mean*o.IOPS) / all
		d.Clat.Mean = (d.Clat.Mean*d.IOPS + o.Clat.Mean*o.IOPS) / all
	}
	d.IOPS, d.Bytes = d.IOPS+o.IOPS, d.Bytes+o.Bytes
	// Percentiles of parts do not add up to one of the whole.
	d.Lat.Percentile, d.Clat.Percentile = nil, nil
}

// fioTests adds the tests of a job: its directions. What the options say of queue depth, copies and cache becomes part
// of the name, so that different tests are never taken for repeats. Usual values are left out.
func (t *Tests) fioTests(job fioJob, copies int) {
	o := job.Options
	kind := cmp.Or(o["rw"], o["readwrite"])
	suffix := words.If(job.Name != kind, "/"+word(job.Name)) + words.If(o["ioengine"] != "", "/"+word(o["ioengine"]))
	for _, x := range []struct{ option, usual, prefix string }{
		{"iodepth", "1", "d"}, {"numjobs", strconv.Itoa(copies), "j"}, {"direct", "0", "direct"}} {
		// "direct" is a switch and has no number in the name.
		if v := o[x.option]; v != "" && v != x.usual {
			suffix += "/" + strings.Replace(x.prefix+word(v), "direct1", "direct", 1)
		}
	}
	suffix += words.If(copies > 1, "/j"+strconv.Itoa(copies))
	block := cmp.Or(o["bs"], o["blocksize"])
	if o["bssplit"] == "" && o["bsrange"] == "" {
		block = cmp.Or(block, "4k") // its own choice
	}
	size := fioSize(block)
	name := "fio_" + word(cmp.Or(kind, "job")) + suffix
	if job.Error != 0 {
		t.of(name).Err = badResult(toolFio, "job %s ended with error %d%s", word(job.Name), job.Error, job.why)
		return
	}
	for i, d := range []fioDirection{job.Read, job.Write, job.Trim} {
		way := []string{"read", "write", "trim"}[i]
		if d.IOPS == 0 && d.Bytes == 0 {
			continue
		}
		of := name
		switch kind {
		case "rw", "readwrite", "randrw", "trimwrite", "randtrimwrite":
			of += "/" + way
		case "":
			of = "fio_" + way + suffix
		}
		x := t.of(of)
		figures, err := d.figures(size)
		if err != nil {
			x.Err = badResult(toolFio, "%s: %v", of, err)
		}
		x.Figures = append(x.Figures, figures...)
	}
}

// figures are those of a direction. A rate that is missing is no result; a latency may be left out.
func (d fioDirection) figures(size int64) ([]Figure, error) {
	// Reads, writes and trims may have blocks of several sizes, and the options tell one. The mean block is bytes by
	// operations.
	// The text has three or four digits of either rate, so that the quotient of a job with one block size is off by
	// some per cent at most.
	if share := d.Bytes / d.IOPS / float64(max(1, size)); share < 0.97 || share > 1.03 {
		size = 0
	}
	percentile := words.Either(len(d.Clat.Percentile) > 0, d.Clat.Percentile, d.Lat.Percentile)
	at := func(p string) float64 { return percentile[p] / 1e3 }
	var all []Figure
	for _, x := range []struct {
		metric string
		value  float64
		needed bool
	}{
		{MetricIOBandwidth, d.Bytes / 1e9, true},
		{MetricIORate, d.IOPS, true},
		{MetricLatencyAverage, cmp.Or(d.Lat.Mean, d.Clat.Mean) / 1e3, false},
		{MetricLatencyTypical, at("50.000000"), false},
		{MetricLatencyP99, at("99.000000"), false},
		{MetricLatencyP999, at("99.900000"), false},
	} {
		if x.value == 0 && !x.needed {
			continue // disable_lat and the like
		}
		if err := CheckValue(x.metric, x.value); err != nil {
			return nil, fmt.Errorf("%s: %w", x.metric, err)
		}
		all = append(all, newFigure(x.metric, size, 0, x.value))
	}
	return all, nil
}

// Lines of fio's text.
var (
	// "name: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) ..., ioengine=libaio, iodepth=32"; release 2 has
	// "bs=4K-4K/...".
	fioDefinition = lazyregexp.New(
		`^(\S.*): \(g=([0-9]{1,9})\): rw=(\w+), bs=(?:\(R\) )?([0-9.]+\w*)-([0-9.]+\w*)[,/ ]` +
			`.*?ioengine=(\w+), iodepth=([0-9]+)`)
	// "name: (groupid=0, jobs=1): err= 0: pid=1234: ..."; with an error "err= 5 (file:..., error=Input/output error)".
	fioResult = lazyregexp.New(
		`^(\S.*): \(groupid=([0-9]{1,9}), jobs=([0-9]{1,9})\): err= *([0-9]{1,9})(?:.*error=([^)]*))?`)
	// Of a job that could not begin: "fio: pid=0, err=22/file:filesetup.c:848, func=open(/x), error=Invalid argument".
	fioGaveUp = lazyregexp.New(`^fio: .*\berr(?:or)?[=:]|^fio: .*(?:failed|No space left)`)
	fioWay    = lazyregexp.New(`^\s+(read|write|trim) *: `)
	fioBW     = lazyregexp.New(`(?i)\bbw=([0-9.]+)([kmgt]?)(i?)B/s`)
	fioOPS    = lazyregexp.New(`(?i)\biops=([0-9.]+)([kmg]?)`)
	// Total and completion latency. That of the submission (slat) is a part of the total and left out.
	fioLat = lazyregexp.New(`^\s+(c?lat) \(([num]sec)\)\s*: min=.*avg= *([0-9.]+)([kM]?), stdev=`)
	fioPer = lazyregexp.New(`^\s+(?:clat|lat) percentiles \(([num]sec)\):`)
	fioTh  = lazyregexp.New(`([0-9.]+)th=\[ *([0-9]+)\]`)
)

// fioScale are the units of times in nanoseconds, and the letters before those of rates.
var fioScale = map[string]float64{"nsec": 1, "usec": 1e3, "msec": 1e6, "": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}

// fioText reads the text. Jobs are described above all results; below them each group is summed up, which shows that
// the text is whole.
func (t *Tests) fioText(output []byte) ([]fioJob, error) {
	type place struct {
		name  string
		group string
	}
	options := map[place]map[string]string{}
	var jobs []fioJob
	var now *fioDirection
	ended, percentiles := false, 1.0
	err := EachLine(toolFio, output, func(line string) error {
		line = strings.TrimRight(line, " \r\n")
		if version, ok := strings.CutPrefix(line, "fio-"); ok && t.Version == "" {
			t.Version = version
		}
		if m := fioDefinition.FindStringSubmatch(line); m != nil {
			o := map[string]string{"rw": m[3], "ioengine": m[6], "iodepth": m[7], "bs": m[4]}
			if m[4] != m[5] {
				o["bs"], o["bsrange"] = "", m[4]+"-"+m[5]
			}
			options[place{m[1], m[2]}] = o
			return nil
		}
		if strings.Contains(line, ": (g=") {
			return errors.New("unknown layout: want rw, bs, ioengine and iodepth of a job")
		}
		if m := fioResult.FindStringSubmatch(line); m != nil {
			job := fioJob{Name: m[1], Options: options[place{m[1], m[2]}],
				why: words.If(m[5] != "", ": "+Shorten(m[5]))}
			job.Group, _ = strconv.Atoi(m[2]) // digits, and few of them
			job.Error, _ = strconv.Atoi(m[4])
			// Only what the group says of its copies tells "jobs=4" of one reported job from four jobs.
			if m[3] != "1" {
				job.Options = withOption(job.Options, "numjobs", m[3])
			}
			jobs, ended, now = append(jobs, job), false, nil
			return nil
		}
		if len(jobs) == 0 {
			return nil
		}
		job := &jobs[len(jobs)-1]
		if m := fioWay.FindStringSubmatch(line); m != nil {
			now = map[string]*fioDirection{"read": &job.Read, "write": &job.Write, "trim": &job.Trim}[m[1]]
			return now.rates(line, strings.HasPrefix(t.Version, "2."))
		}
		if m := fioLat.FindStringSubmatch(line); m != nil && now != nil {
			v, _, err := parseNumber(m[3])
			into := words.Either(m[1] == "clat", &now.Clat, &now.Lat)
			into.Mean = v * fioScale[m[2]] * fioScale[strings.ToLower(m[4])]
			return err
		}
		if strings.Contains(line, "lat (") && strings.Contains(line, "avg=") && !strings.Contains(line, "slat (") {
			return errors.New("unknown layout: want the average of a latency")
		}
		if m := fioPer.FindStringSubmatch(line); m != nil && now != nil {
			percentiles, now.Clat.Percentile = fioScale[m[1]], map[string]float64{}
		}
		if strings.HasPrefix(strings.TrimSpace(line), "|") && now != nil && now.Clat.Percentile != nil {
			for _, m := range fioTh.FindAllStringSubmatch(line, -1) {
				v, _, err := parseNumber(m[2])
				if err != nil {
					return err
				}
				now.Clat.Percentile[m[1]+"0000"] = v * percentiles // "99.00", and in JSON "99.000000"
			}
		}
		ended = ended || strings.HasPrefix(line, "Run status group")
		return nil
	})
	if err == nil && len(jobs) == 0 {
		err = firstSign(toolFio, output, fioGaveUp)
	}
	if err == nil && !ended {
		err = BadOutput(toolFio, output, "the text is cut off or empty: no \"Run status group\" comes below the jobs")
	}
	return jobs, err
}

// withOption returns the options with one more: others may share the map.
func withOption(options map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	maps.Copy(all, options)
	return all
}

// rates reads the line of a direction. Before release 3 "KB" stands for 1024 bytes.
func (d *fioDirection) rates(line string, old bool) error {
	bw, ops := fioBW.FindStringSubmatch(line), fioOPS.FindStringSubmatch(line)
	if bw == nil || ops == nil {
		return errors.New("the line has no IOPS or no bandwidth")
	}
	v, _, err := parseNumber(bw[1])
	if err != nil {
		return err
	}
	power := slices.Index([]string{"", "k", "m", "g", "t"}, strings.ToLower(bw[2]))
	base := words.Either(bw[3] != "" || old, 1024, 1000.0)
	for range power {
		v *= base
	}
	d.Bytes = v
	v, _, err = parseNumber(ops[1])
	d.IOPS = v * fioScale[strings.ToLower(ops[2])]
	return err
}

// fioSize is a block size in bytes: "4k", "64.0KiB", "4096B"; 0 where it is not one size.
func fioSize(text string) int64 {
	digits := strings.TrimRightFunc(text, unicode.IsLetter)
	v, _, err := parseNumber(digits)
	unit := strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(text[len(digits):], "B"), "i"))
	power := slices.Index([]string{"", "k", "m", "g"}, unit)
	if err != nil || power < 0 || v <= 0 || v > 1<<20 {
		return 0
	}
	return int64(v * float64(int64(1)<<(10*power)))
}

// word makes a part of a test's name of a text from outside.
func word(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._+-=", r)) {
			return r
		}
		return '-'
	}, text)
	return text[:min(len(text), 60)]
}
