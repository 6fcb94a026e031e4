// Makes the table of the filter `slug`, and facts to test the filter with, by running the library that Argo CD uses for
// `branch_slug`. `make slug` runs it.
//
// usage: slug table|facts
package main

import (
	"bufio"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"

	"github.com/gosimple/slug"
	"github.com/gosimple/unidecode"
)

// The last character of the Basic Multilingual Plane. The library drops all characters behind it, which `facts` shows.
const last = 0xFFFF

func main() {
	// As Argo CD sets them (applicationset/generators/pull_request.go).
	slug.MaxLength = 50
	slug.CustomSub = map[string]string{"_": "-"}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch strings.Join(os.Args[1:], " ") {
	case "table":
		table(out)
	case "facts":
		facts(out)
	default:
		fmt.Fprintln(os.Stderr, "usage: slug table|facts")
		os.Exit(2)
	}
}

// table writes a line for each character from U+0080 to the last, compressed: what becomes of the character in a slug.
func table(out *bufio.Writer) {
	packed, err := flate.NewWriter(out, flate.BestCompression)
	check(err)
	for c := rune(0x80); c <= last; c++ {
		line := ""
		if !isSurrogate(c) {
			line = written(unidecode.Unidecode(string(c)))
		}
		_, err = fmt.Fprintln(packed, line)
		check(err)
	}
	check(packed.Close())
}

// written is text in a slug: in lower case, and each run of what no slug has is a dash.
func written(text string) string {
	var kept strings.Builder
	for _, c := range strings.ToLower(text) {
		isKept := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
		if isKept {
			kept.WriteRune(c)
		} else if !strings.HasSuffix(kept.String(), "-") {
			kept.WriteByte('-')
		}
	}
	return kept.String()
}

// facts writes the checksum of the slugs of all characters, each between two letters: by blocks of 256, and by planes behind the
// table. Then it writes names and their slugs.
func facts(out *bufio.Writer) {
	for first, size := rune(0), rune(256); first <= 0x10FFFF; first += size {
		if first > last {
			size = 0x10000
		}
		sum := sha256.New()
		for c := first; c < first+size; c++ {
			if !isSurrogate(c) {
				fmt.Fprintln(sum, slug.Make("x"+string(c)+"y"))
			}
		}
		fmt.Fprintf(out, "%x %x %x\n", first, first+size-1, sum.Sum(nil)[:8])
	}
	random := rand.New(rand.NewSource(1))
	for range 600 {
		name := name(random)
		line, err := json.Marshal([]string{name, slug.Make(name)})
		check(err)
		fmt.Fprintf(out, "%s\n", line)
	}
}

// name is a random name, which may be longer than a slug.
func name(random *rand.Rand) string {
	ranges := [][2]rune{
		{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {' ', '/'}, {'a', 'z'}, {'_', '_'}, {'-', '-'}, {'/', '/'}, {0x09, 0x0D}, {0x80, 0xFF},
		{0x100, 0x24F}, {0x2C0, 0x2DF}, {0x370, 0x4FF}, {0x2000, 0x206F}, {0x2100, 0x21FF}, {0x3040, 0x30FF}, {0x4E00, 0x9FFF},
		{0xAC00, 0xD7A3}, {0xFB00, 0xFB4F}, {0xFF00, 0xFFEF}, {0x1F600, 0x1F64F},
	}
	var name strings.Builder
	for range 1 + random.Intn(40) {
		of := ranges[random.Intn(len(ranges))]
		name.WriteRune(of[0] + random.Int31n(of[1]-of[0]+1))
	}
	return name.String()
}

func isSurrogate(c rune) bool { return 0xD800 <= c && c <= 0xDFFF }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
