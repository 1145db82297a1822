import type { Handler } from './handler.ts';
import { refuse } from './refuse.ts';

/** The API's own header, and the header that ngrok's clients send. */
const HEADERS = ['service-version', 'ngrok-version'];
const SUPPORTED = '2';

export const requireVersion: Handler = (req, _res, next) => {
  const sent = HEADERS.map((name) => req.headers[name]).filter((value) => value !== undefined);
  if (sent.length === 0) {
    throw refuse(400, 218, `no API version; send the header Service-Version: ${SUPPORTED}`);
  }
  if (sent.some((value) => value !== SUPPORTED)) {
    throw refuse(400, 217, `API version not supported; send the header Service-Version: ${SUPPORTED}`);
  }
  next();
};
