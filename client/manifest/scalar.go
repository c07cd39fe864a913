package manifest

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Kubernetes reads YAML 1.1: yes, on and off are booleans, 0644 is octal, 1_000 is a number. The rules of plain scalars
// are therefore here, and the YAML library only says which scalars are plain. A plain timestamp is text, as it is for
// Kubernetes.

// yamlFloat matches what YAML 1.1 takes for a decimal number.
var yamlFloat = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// resolvePlain says what a plain scalar is, and its value in JSON's spelling.
func resolvePlain(source string) (shape, string) {
	switch source {
	case "", "~", "null", "Null", "NULL":
		return shapeNull, ""
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return shapeBool, "true"
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return shapeBool, "false"
	case ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF":
		return shapeFloat, source
	}
	if c := source[0]; c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') {
		return shapeText, source
	}
	plain := strings.ReplaceAll(source, "_", "")
	if value, err := strconv.ParseInt(plain, 0, 64); err == nil {
		return shapeInteger, strconv.FormatInt(value, 10)
	}
	if value, err := strconv.ParseUint(plain, 0, 64); err == nil {
		return shapeInteger, strconv.FormatUint(value, 10)
	}
	if !yamlFloat.MatchString(plain) {
		return shapeText, source
	}
	value, err := strconv.ParseFloat(plain, 64)
	switch {
	case err != nil:
		// Larger than any number: text, for Kubernetes too.
		return shapeText, source
	case isDigits(plain):
		// An integer of more than 64 bits.
		return shapeInteger, strings.TrimPrefix(plain, "+")
	default:
		return shapeFloat, formatFloat(value)
	}
}

// isDigits reports whether s is a sign and digits, of which the first is not a zero that would make it octal.
func isDigits(s string) bool {
	digits := strings.TrimLeft(s, "+-")
	return digits != "" && digits[0] != '0' && strings.Trim(digits, "0123456789") == ""
}

// formatFloat spells a number as encoding/json does.
func formatFloat(value float64) string {
	format := byte('f')
	if abs := math.Abs(value); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	text := strconv.FormatFloat(value, format, -1, 64)
	if format == 'e' {
		// e-09 becomes e-9.
		if n := len(text); n >= 4 && text[n-4] == 'e' && text[n-3] == '-' && text[n-2] == '0' {
			text = text[:n-2] + text[n-1:]
		}
	}
	return text
}
