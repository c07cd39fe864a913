package manifest

import "google.golang.org/protobuf/proto"

// EncodeMessageYAML prints a message that is no kind, such as an answer, with its fields as it declares them.
func EncodeMessageYAML(message proto.Message) ([]byte, error) {
	w := &yamlWriter{}
	if err := encodeAny(w, message); err != nil {
		return nil, err
	}
	return w.document(), nil
}

// EncodeMessageJSON prints a message as EncodeMessageYAML does, as indented JSON with a line break at the end.
func EncodeMessageJSON(message proto.Message) ([]byte, error) {
	w := &jsonWriter{indent: "    "}
	if err := encodeAny(w, message); err != nil {
		return nil, err
	}
	return append(w.out, '\n'), nil
}
