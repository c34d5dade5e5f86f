/** Host labels that cannot be failure domains: all different, and all of one machine or address. */
import { describe, expect, it } from 'vitest';
import { domainsProblem } from '../../../src/core/placement/domains.js';
import type { NodeEntry } from '../../../src/protocol/map.js';

const node = (id: number, host: string, address: string, machine?: string): NodeEntry => ({
  id,
  inc: 1,
  name: `ps-${id}`,
  host,
  address,
  ...(machine !== undefined && { machine }),
  standby: false,
});

describe('host labels', () => {
  it('are doubted when all differ and all nodes run on one machine', () => {
    const nodes = [node(1, 'a', '10.0.0.1:1', 'm'), node(2, 'b', '10.0.0.2:1', 'm')];
    expect(domainsProblem(nodes)).toMatch(
      /^all PS run on one machine under different host labels: .*--host-label$/,
    );
  });

  it('are doubted when all differ and all nodes have one address', () => {
    for (const [one, two] of [
      [undefined, undefined],
      ['m', undefined],
      ['m', 'n'],
    ]) {
      const nodes = [node(1, 'a', '[fd00::1]:1', one), node(2, 'b', '[fd00::1]:2', two)];
      expect(domainsProblem(nodes)).toMatch(/^all PS have the address \[fd00::1\] /);
    }
  });

  it('are believed on loopback addresses: whoever gives different ones there means them', () => {
    for (const address of ['127.0.0.1', '127.0.0.9', '[::1]', 'localhost']) {
      const nodes = [node(1, 'a', `${address}:1`, 'm'), node(2, 'b', '127.0.0.1:2', 'm')];
      expect(domainsProblem(nodes)).toBeUndefined();
      const third = node(3, 'c', '10.0.0.1:1', 'm');
      expect(domainsProblem([...nodes, third])).toMatch(/^all PS run on one machine/);
    }
  });

  it('are believed otherwise', () => {
    expect(domainsProblem([])).toBeUndefined();
    expect(domainsProblem([node(1, 'a', 'x:1', 'm')])).toBeUndefined();
    expect(domainsProblem([node(1, 'a', 'x:1', 'm'), node(2, 'a', 'x:2', 'm')])).toBeUndefined();
    expect(domainsProblem([node(1, 'a', 'x:1', 'm'), node(2, 'b', 'y:1', 'n')])).toBeUndefined();
    expect(domainsProblem([node(1, 'a', 'x:1', 'm'), node(2, 'b', 'y:1')])).toBeUndefined();
    const third = node(3, 'b', 'z:1', 'm');
    expect(domainsProblem([node(1, 'a', 'x:1', 'm'), node(2, 'b', 'y:1', 'm'), third])).toBeUndefined();
  });
});
