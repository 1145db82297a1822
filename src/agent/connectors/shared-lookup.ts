import type { LookupAddress } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { addressesOf } from '../../lib/network/loopback-names.ts';

type Answer = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void;

/**
 * getaddrinfo cannot be cancelled, waits 5 s per try for a silent name server, and has two threads of libuv's pool. So at
 * most two run at a time and all other callers wait for the newer one. A queue of stale look-ups would delay the first
 * one that can be answered.
 */
const MAX_RUNNING = 2;

/** Creates a `lookup` for node:net whose concurrent callers share look-ups; all must ask for the same name. */
export function sharedLookup(): LookupFunction {
  const running: Answer[][] = [];
  const ask = (host: string, waiting: Answer[]) => {
    running.push(waiting);
    const end = (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => {
      running.splice(running.indexOf(waiting), 1);
      for (const answer of waiting) answer(error, addresses);
    };
    addressesOf(host).then(
      (addresses) => end(null, addresses),
      (error: NodeJS.ErrnoException) => end(error, []),
    );
  };
  return (host, options, callback) => {
    const answer: Answer = (error, addresses) => {
      const [first] = addresses ?? [];
      if (options.all) callback(error, addresses ?? []);
      else callback(error, first?.address ?? '', first?.family);
    };
    const newest = running.at(-1);
    if (running.length < MAX_RUNNING || !newest) ask(host, [answer]);
    else newest.push(answer);
  };
}
