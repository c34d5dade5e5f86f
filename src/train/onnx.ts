/**
 * The few ONNX messages that a graph needs, and a builder for them. The field numbers are those of
 * onnx.proto3 (ONNX IR); protobufjs encodes them. Only standard operators of one opset are used, so that any
 * ONNX runtime can run the graph.
 */
import protobuf from 'protobufjs';
import { invariant } from '../errors.js';

const IR_VERSION = 8;
const OPSET = 17;
const FLOAT = 1;
const INT64 = 7;
/** AttributeProto.AttributeType */
const ATTRIBUTE = { float: 1, int: 2, ints: 7 } as const;

const SCHEMA = `
syntax = "proto3";
message Model {
  int64 ir_version = 1;
  string producer_name = 2;
  Graph graph = 7;
  repeated OperatorSet opset_import = 8;
}
message OperatorSet { string domain = 1; int64 version = 2; }
message Graph {
  repeated Node node = 1;
  string name = 2;
  repeated Tensor initializer = 5;
  repeated ValueInfo input = 11;
  repeated ValueInfo output = 12;
}
message Node {
  repeated string input = 1;
  repeated string output = 2;
  string name = 3;
  string op_type = 4;
  repeated Attribute attribute = 5;
}
message Attribute {
  string name = 1;
  float f = 2;
  int64 i = 3;
  repeated int64 ints = 8;
  int32 type = 20;
}
message Tensor {
  repeated int64 dims = 1;
  int32 data_type = 2;
  string name = 8;
  bytes raw_data = 9;
}
message ValueInfo { string name = 1; Type type = 2; }
message Type { TensorType tensor_type = 1; }
message TensorType { int32 elem_type = 1; Shape shape = 2; }
message Shape { repeated Dimension dim = 1; }
message Dimension { oneof value { int64 dim_value = 1; string dim_param = 2; } }
`;

const Model = protobuf.parse(SCHEMA, { keepCase: true }).root.lookupType('Model');

/** A number is fixed, a name is a size known only at run time. */
export type Extent = number | string;

interface Attribute {
  name: string;
  type: number;
  f?: number;
  i?: number;
  ints?: number[];
}

/** `{ float: x }` marks a float attribute; plain numbers are integers. */
export type AttributeValue = number | readonly number[] | { float: number };

function attribute(name: string, value: AttributeValue): Attribute {
  if (typeof value === 'number') return { name, type: ATTRIBUTE.int, i: value };
  if ('float' in value) return { name, type: ATTRIBUTE.float, f: value.float };
  return { name, type: ATTRIBUTE.ints, ints: [...value] };
}

function valueInfo(name: string, shape: readonly Extent[]) {
  const dim = shape.map((extent) =>
    typeof extent === 'number' ? { dim_value: extent } : { dim_param: extent },
  );
  return { name, type: { tensor_type: { elem_type: FLOAT, shape: { dim } } } };
}

/** Builds a graph in execution order; every value is known by its name. */
export class GraphBuilder {
  private readonly nodes: object[] = [];
  private readonly constants: object[] = [];
  private readonly inputs: object[] = [];
  private readonly outputs: object[] = [];
  private readonly names = new Set<string>();

  constructor(private readonly name: string) {}

  private define(name: string): string {
    invariant(!this.names.has(name), 'a value of the graph has two definitions', name);
    this.names.add(name);
    return name;
  }

  /** Declares a float input. */
  input(name: string, shape: readonly Extent[]): string {
    this.inputs.push(valueInfo(this.define(name), shape));
    return name;
  }

  /** Makes a value that is there a float output. */
  output(name: string, shape: readonly Extent[]): void {
    invariant(this.names.has(name), 'an output of the graph is not computed', name);
    this.outputs.push(valueInfo(name, shape));
  }

  floats(name: string, dims: readonly number[], values: readonly number[]): string {
    return this.constant(name, dims, FLOAT, Float32Array.from(values));
  }

  integers(name: string, values: readonly number[], dims: readonly number[] = [values.length]): string {
    return this.constant(
      name,
      dims,
      INT64,
      BigInt64Array.from(values, (value) => BigInt(value)),
    );
  }

  private constant(name: string, dims: readonly number[], dataType: number, values: ArrayBufferView): string {
    const raw = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    this.constants.push({ name: this.define(name), dims: [...dims], data_type: dataType, raw_data: raw });
    return name;
  }

  /** Adds a node with one result and returns the result's name. */
  node(
    op: string,
    inputs: readonly string[],
    output: string,
    attributes: Record<string, AttributeValue> = {},
  ) {
    this.nodeOf(op, inputs, [output], attributes);
    return output;
  }

  nodeOf(
    op: string,
    inputs: readonly string[],
    outputs: readonly string[],
    attributes: Record<string, AttributeValue> = {},
  ): void {
    for (const input of inputs)
      invariant(this.names.has(input), 'an operand of the graph is not defined', input);
    for (const output of outputs) this.define(output);
    this.nodes.push({
      name: outputs[0]!,
      op_type: op,
      input: [...inputs],
      output: [...outputs],
      attribute: Object.entries(attributes).map(([key, value]) => attribute(key, value)),
    });
  }

  /** The bytes of the ONNX model. */
  encode(): Uint8Array {
    const message = {
      ir_version: IR_VERSION,
      producer_name: 'kintsugi',
      opset_import: [{ domain: '', version: OPSET }],
      graph: {
        name: this.name,
        node: this.nodes,
        initializer: this.constants,
        input: this.inputs,
        output: this.outputs,
      },
    };
    const problem = Model.verify(message);
    invariant(problem === null, 'the graph does not fit the ONNX schema', problem);
    return Model.encode(Model.create(message)).finish();
  }
}
