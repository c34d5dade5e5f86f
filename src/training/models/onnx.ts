/**
 * The few ONNX messages that a graph needs, and a builder for them. The field numbers are those of
 * onnx.proto3 (ONNX IR). Only standard operators of one opset are used, so that any
 * ONNX runtime can run the graph.
 */
import { invariant } from '../../common/errors.js';
import { delimited, float32, integer, integers, text } from '../../common/protobuf.js';

const IR_VERSION = 8;
const OPSET = 17;
const FLOAT = 1;
const INT64 = 7;
/** AttributeProto.AttributeType */
const ATTRIBUTE = { float: 1, int: 2, ints: 7 } as const;

// Numbers of the fields, by message.
const MODEL = { irVersion: 1, producerName: 2, graph: 7, opsetImport: 8 } as const;
const OPERATOR_SET = { version: 2 } as const;
const GRAPH = { node: 1, name: 2, initializer: 5, input: 11, output: 12 } as const;
const NODE = { input: 1, output: 2, name: 3, opType: 4, attribute: 5 } as const;
const ATTRIBUTE_FIELDS = { name: 1, f: 2, i: 3, ints: 8, type: 20 } as const;
const TENSOR = { dims: 1, dataType: 2, name: 8, rawData: 9 } as const;
const VALUE_INFO = { name: 1, type: 2 } as const;
const TYPE = { tensorType: 1 } as const;
const TENSOR_TYPE = { elemType: 1, shape: 2 } as const;
const SHAPE = { dim: 1 } as const;
const DIMENSION = { value: 1, param: 2 } as const;

/** A number is fixed, a name is a size known only at run time. */
export type TensorExtent = number | string;

/** `{ float: x }` marks a float attribute; plain numbers are integers. */
export type AttributeValue = number | readonly number[] | { float: number };

function attribute(name: string, value: AttributeValue): Buffer {
  const fields = (content: readonly Buffer[], type: number): Buffer =>
    Buffer.concat([text(ATTRIBUTE_FIELDS.name, name), ...content, integer(ATTRIBUTE_FIELDS.type, type)]);
  // proto3 leaves out a field that is zero.
  if (typeof value === 'number')
    return fields(value === 0 ? [] : [integer(ATTRIBUTE_FIELDS.i, value)], ATTRIBUTE.int);
  if ('float' in value)
    return fields(value.float === 0 ? [] : [float32(ATTRIBUTE_FIELDS.f, value.float)], ATTRIBUTE.float);
  return fields([integers(ATTRIBUTE_FIELDS.ints, value)], ATTRIBUTE.ints);
}

function valueInfo(name: string, shape: readonly TensorExtent[]): Buffer {
  const dims = shape.map((extent) =>
    delimited(
      SHAPE.dim,
      typeof extent === 'number' ? integer(DIMENSION.value, extent) : text(DIMENSION.param, extent),
    ),
  );
  const type = [integer(TENSOR_TYPE.elemType, FLOAT), delimited(TENSOR_TYPE.shape, dims)];
  const tensor = delimited(TYPE.tensorType, type);
  return Buffer.concat([text(VALUE_INFO.name, name), delimited(VALUE_INFO.type, tensor)]);
}

/** Builds a graph in execution order; every value is known by its name. */
export class GraphBuilder {
  // Encoded.
  private readonly nodes: Buffer[] = [];
  private readonly constants: Buffer[] = [];
  private readonly inputs: Buffer[] = [];
  private readonly outputs: Buffer[] = [];
  private readonly names = new Set<string>();

  constructor(private readonly name: string) {}

  private define(name: string): string {
    invariant(!this.names.has(name), 'a value of the graph has two definitions', name);
    this.names.add(name);
    return name;
  }

  /** Declares a float input. */
  input(name: string, shape: readonly TensorExtent[]): string {
    this.inputs.push(valueInfo(this.define(name), shape));
    return name;
  }

  /** Makes a value that is there a float output. */
  output(name: string, shape: readonly TensorExtent[]): void {
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
    this.constants.push(
      Buffer.concat([
        integers(TENSOR.dims, dims),
        integer(TENSOR.dataType, dataType),
        text(TENSOR.name, this.define(name)),
        delimited(TENSOR.rawData, raw),
      ]),
    );
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
    this.nodes.push(
      Buffer.concat([
        ...inputs.map((input) => text(NODE.input, input)),
        ...outputs.map((output) => text(NODE.output, output)),
        text(NODE.name, outputs[0]!),
        text(NODE.opType, op),
        ...Object.entries(attributes).map(([key, value]) => delimited(NODE.attribute, attribute(key, value))),
      ]),
    );
  }

  /** The bytes of the ONNX model. */
  encode(): Uint8Array {
    const graph = [
      ...this.nodes.map((node) => delimited(GRAPH.node, node)),
      text(GRAPH.name, this.name),
      ...this.constants.map((tensor) => delimited(GRAPH.initializer, tensor)),
      ...this.inputs.map((input) => delimited(GRAPH.input, input)),
      ...this.outputs.map((output) => delimited(GRAPH.output, output)),
    ];
    // Without a domain: that of the standard operators.
    const opset = integer(OPERATOR_SET.version, OPSET);
    return Buffer.concat([
      integer(MODEL.irVersion, IR_VERSION),
      text(MODEL.producerName, 'kintsugi'),
      delimited(MODEL.graph, graph),
      delimited(MODEL.opsetImport, opset),
    ]);
  }
}
