import type { RequestListener } from 'node:http';
import type { Log } from '../lib/log.ts';
import { internalFailure } from './edge/http/edge-errors.ts';
import { answerError } from './edge/http/error-response.ts';

/**
 * A service whose code is loaded with its first request: inside an agent, most gateways never get one.
 *
 * @param load called again after it failed
 */
export function lazyService(load: () => Promise<RequestListener>, log: Log): RequestListener {
  let loading: Promise<RequestListener> | null = null;
  return (req, res) => {
    loading ??= load();
    loading.then(
      (listener) => listener(req, res),
      (error: unknown) => {
        loading = null;
        log.error({ err: error }, 'a service of the gateway could not be loaded');
        answerError(req, res, internalFailure());
      },
    );
  };
}
