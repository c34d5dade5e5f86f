/**
 * host:port in all the forms that users write: "host:port", ":port", "port", "[::1]:port",
 * "kintsugi://host:port".
 */
import { KintsugiError } from '../common/errors.js';
import { checkText } from '../common/options.js';

/** Names of nodes: they begin with a letter or digit, so that none is a special key of an object. */
export const NODE_NAME = /^[A-Za-z0-9][\w.:-]{0,127}$/;

export interface Address {
  host: string;
  port: number;
}

/** @throws BAD_ARGUMENT */
export function parseAddress(text: string, defaultHost = '127.0.0.1'): Address {
  checkText('an address', text);
  const bare = text.replace(/^(kintsugi|ws):\/\//, '').replace(/\/$/, '');
  const match = /^(?:(\[[0-9a-fA-F:]+\]|[^:\s]*):)?(\d{1,5})$/.exec(bare);
  const port = Number(match?.[2]);
  if (!match || port > 65535)
    throw new KintsugiError('BAD_ARGUMENT', `"${text}" is not an address of the form host:port`);
  const host = (match[1] ?? '').replace(/^\[|\]$/g, '') || defaultHost;
  return { host, port };
}

/** Addresses with commas between them: those of all schedulers of a job. @throws BAD_ARGUMENT */
export function parseAddresses(text: string): Address[] {
  checkText('an address', text);
  return text.split(',').map((each) => parseAddress(each.trim()));
}

/** The address at which peers reach a role. `advertise`: host or host:port; default: where it listens. */
export function advertisedAddress(advertise: string | undefined, { host, port }: Address): string {
  if (advertise === undefined) return formatAddress({ host, port });
  const withPort = /:\d+$/.test(advertise) && !advertise.endsWith(']') ? advertise : `${advertise}:${port}`;
  return formatAddress(parseAddress(withPort));
}

export function formatAddress({ host, port }: Address): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
