/**
 * Loaded into the gateway before its program (`node --import`): names of Amazon's message service lead to a server on this
 * machine, whose port is in `AMAZON_PORT`. Without it, an attack that makes the gateway fetch from there would reach Amazon.
 */
import dns, { type LookupAddress, type LookupOptions } from 'node:dns';
import dnsPromises from 'node:dns/promises';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';

const ADDRESS = '127.0.0.53';
const isAmazons = (name: unknown) => typeof name === 'string' && /^sns\.[a-z0-9-]+\.amazonaws\.com$/.test(name);

type Found = (error: Error | null, addresses: LookupAddress[] | string, family?: number) => void;
const { lookup } = dns;
const stoodIn = (name: string, options: LookupOptions | Found, found: Found) => {
  if (!isAmazons(name)) return Reflect.apply(lookup, dns, [name, options, found]);
  const callback = typeof options === 'function' ? options : found;
  const isAll = typeof options === 'object' && options.all === true;
  setImmediate(() => (isAll ? callback(null, [{ address: ADDRESS, family: 4 }]) : callback(null, ADDRESS, 4)));
};
Object.assign(dns, { lookup: stoodIn });

const { prototype } = dnsPromises.Resolver;
const { resolve4, resolve6 } = prototype;
Object.assign(prototype, {
  async resolve4(this: dnsPromises.Resolver, name: string) {
    return isAmazons(name) ? [ADDRESS] : Reflect.apply(resolve4, this, [name]);
  },
  async resolve6(this: dnsPromises.Resolver, name: string) {
    return isAmazons(name) ? [] : Reflect.apply(resolve6, this, [name]);
  },
});

// Nothing but root can listen at Amazon's port.
const { connect } = net.Socket.prototype;
net.Socket.prototype.connect = function (this: net.Socket, ...given: unknown[]) {
  // Node's own callers pass one array, which is marked as having been read.
  const [options] = (Array.isArray(given[0]) ? given[0] : given) as [{ host?: string; port?: number | string }];
  if (typeof options === 'object' && (options.host === ADDRESS || isAmazons(options.host)))
    options.port = Number(process.env.AMAZON_PORT);
  return Reflect.apply(connect, this, given);
} as typeof connect;

syncBuiltinESMExports();
