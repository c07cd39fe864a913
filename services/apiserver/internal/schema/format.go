package schema

import (
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/validation"

	"trireme.dev/client/quantity"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

type stringCheck func(p *path, s string, out *violations)

// words makes a check of one of Kubernetes' validators, which return what is wrong.
func words(check func(string) []string) stringCheck {
	return func(p *path, s string, out *violations) {
		for _, message := range check(s) {
			out.invalid(p, strconv.Quote(s), message)
		}
	}
}

// unless leaves out the check of what is plainly right.
func unless(plain func(string) bool, check func(string) []string) func(string) []string {
	return func(s string) []string {
		if plain(s) {
			return nil
		}
		return check(s)
	}
}

// stringFormat returns the check of a string's format; nil where the format says nothing about strings.
func stringFormat(f metav1.Format) stringCheck {
	switch f {
	case metav1.Format_FORMAT_QUANTITY:
		return checkQuantity
	case metav1.Format_FORMAT_DURATION:
		return func(p *path, s string, out *violations) {
			if _, err := time.ParseDuration(s); err != nil {
				out.invalid(p, strconv.Quote(s), "must be a duration such as 1m30s")
			}
		}
	case metav1.Format_FORMAT_DNS_LABEL:
		return words(unless(plainLabel, validation.IsDNS1123Label))
	case metav1.Format_FORMAT_DNS_SUBDOMAIN:
		return words(unless(plainSubdomain, validation.IsDNS1123Subdomain))
	case metav1.Format_FORMAT_LABEL_KEY:
		return words(unless(plainQualified, validation.IsQualifiedName))
	case metav1.Format_FORMAT_PORT_NAME:
		return words(validation.IsValidPortName)
	case metav1.Format_FORMAT_ENV_NAME:
		return words(validation.IsRelaxedEnvVarName)
	case metav1.Format_FORMAT_CONFIG_KEY:
		return words(validation.IsConfigMapKey)
	case metav1.Format_FORMAT_IP:
		return func(p *path, s string, out *violations) {
			if addr, err := netip.ParseAddr(s); err != nil || addr.Zone() != "" {
				out.invalid(p, strconv.Quote(s), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
			}
		}
	case metav1.Format_FORMAT_CIDR:
		return func(p *path, s string, out *violations) {
			if _, err := netip.ParsePrefix(s); err != nil {
				out.invalid(p, strconv.Quote(s), "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
			}
		}
	case metav1.Format_FORMAT_ABSOLUTE_PATH:
		return func(p *path, s string, out *violations) {
			if !strings.HasPrefix(s, "/") {
				out.invalid(p, strconv.Quote(s), "must be an absolute path")
			}
		}
	}
	return nil
}

func checkQuantity(p *path, s string, out *violations) {
	if _, ok := QuantityOf(s); !ok {
		out.invalid(p, strconv.Quote(s), "must be a quantity such as 500m, 2 or 1Gi")
	}
}

// QuantityOf parses a quantity; ok is false where it is none.
func QuantityOf(s string) (q quantity.Quantity, ok bool) {
	if s == "" {
		return q, false
	}
	q, err := quantity.Parse(s)
	return q, err == nil
}

// mapFormat returns the checks of a map's keys and of its values.
func mapFormat(f metav1.Format) (key, value stringCheck) {
	switch f {
	case metav1.Format_FORMAT_LABELS:
		return words(unless(plainQualified, validation.IsQualifiedName)), words(unless(plainName, validation.IsValidLabelValue))
	case metav1.Format_FORMAT_QUANTITY:
		return nil, checkQuantity
	case metav1.Format_FORMAT_CONFIG_KEY:
		check := stringFormat(f)
		return func(p *path, s string, out *violations) { check(p.key(s), s, out) }, nil
	}
	return stringFormat(f), nil
}

var percent = regexp.MustCompile(`^[0-9]+%$`)

// valueFormat checks a google.protobuf.Value that stands for an integer or a string.
func valueFormat(f metav1.Format) func(*path, protoreflect.Value, *violations) {
	if f != metav1.Format_FORMAT_INT_OR_STRING && f != metav1.Format_FORMAT_INT_OR_PERCENT {
		return nil
	}
	return func(p *path, v protoreflect.Value, out *violations) {
		value, ok := v.Message().Interface().(*structpb.Value)
		if !ok {
			return
		}
		switch k := value.GetKind().(type) {
		case *structpb.Value_NumberValue:
			switch n := k.NumberValue; {
			case n != math.Trunc(n) || math.Abs(n) > math.MaxInt32:
				out.invalid(p, strconv.FormatFloat(n, 'g', -1, 64), "must be an integer")
			case n < 0 && f == metav1.Format_FORMAT_INT_OR_PERCENT:
				out.invalid(p, strconv.Itoa(int(n)), "must be greater than or equal to 0")
			}
		case *structpb.Value_StringValue:
			if f == metav1.Format_FORMAT_INT_OR_PERCENT && !percent.MatchString(k.StringValue) {
				out.invalid(p, strconv.Quote(k.StringValue),
					"a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', or '93%')")
			}
		default:
			out.invalid(p, "("+p.name+")", "must be an integer or a string")
		}
	}
}
