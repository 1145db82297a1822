import type { RequestListener } from 'node:http';
import type { Log } from '../../lib/log/log.ts';
import { internalFailure } from './http/edge-errors.ts';
import { answerError } from './http/error-response.ts';

/**
 * A request listener whose code is loaded on its first request: most gateways inside an agent never get one.
 *
 * @param load called again after a failure
 */
export function lazyListener(load: () => Promise<RequestListener>, log: Log): RequestListener {
  let loading: Promise<RequestListener> | null = null;
  return (req, res) => {
    loading ??= load();
    loading.then(
      (listener) => listener(req, res),
      (error: unknown) => {
        loading = null;
        log.error({ err: error }, 'management API not loaded');
        answerError(req, res, internalFailure());
      },
    );
  };
}
