import type { Router } from 'express';
import { Repeats } from '../../lib/log/repeats.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import type { Clock } from '../../lib/time/clock.ts';
import {
  CA_PATH,
  ENROLMENTS_PATH,
  EnrolmentRequest,
  LEAVE_PATH,
  LeaveRequest,
} from '../../management/resources/enrolment.ts';
import { TIME_PATH, TimeRequest } from '../../management/resources/time-proof.ts';
import { EnrolmentError, Enrolments } from '../devices/enrolments.ts';
import type { ApiContext } from './api-context.ts';
import type { FailedAttempts } from './authentication.ts';
import type { Handler } from './handler.ts';
import { strictRouter } from './operation-router.ts';
import { readBody } from './request.ts';

/** The routes for devices that join or leave, which have no API key: the CA, the time, and the enrolment itself. */
export function enrolmentRouter(
  context: ApiContext,
  attempts: FailedAttempts,
  clock: Clock,
  withBody: Handler[],
): Router {
  const { store, live, place, times, log } = context;
  const enrolments = new Enrolments(store, live, place, () => clock.now());
  const repeats = new Repeats();
  const slowDown = (ip: string) => async (error: unknown) => {
    if (error instanceof EnrolmentError) {
      const times = repeats.timesDue(`${error.code} ${clientNetwork(ip)}`);
      if (times !== null) log.warn({ address: ip, reason: error.message, times }, 'enrolment refused');
      await attempts.slowDown(ip);
    }
    throw error;
  };
  const router = strictRouter();
  router.get(CA_PATH, (_req, res) => {
    res.type('application/x-pem-file').send(place.caBundle);
  });
  router.post(TIME_PATH, ...withBody, async (req, res) => {
    const { nonce } = readBody(TimeRequest, 'POST', req.body);
    res.json(await times.prove(nonce));
  });
  router.post(ENROLMENTS_PATH, ...withBody, async (req, res) => {
    const request = readBody(EnrolmentRequest, 'POST', req.body);
    const ip = req.ip ?? '';
    const enrol = () => enrolments.enrol(request, ip);
    // The code may have been made at another gateway a moment ago.
    const again = async (error: unknown) => {
      if (!(error instanceof EnrolmentError && error.code === 'ERR_GATEWAY_CODE_UNKNOWN')) throw error;
      await context.catchUp();
      return enrol();
    };
    const { answer, isRepeated } = await enrol().catch(again).catch(slowDown(ip));
    const { device_id: device, name: device_name, site } = answer;
    const times = answer.status === 'enrolled' ? repeats.timesDue(device) : null;
    if (times !== null) log.info({ device, device_name, site, address: ip, times }, 'device enrolled');
    else if (!isRepeated) log.warn({ device, device_name, site, address: ip }, 'device waits for approval');
    res.json(answer);
  });
  router.post(LEAVE_PATH, ...withBody, async (req, res) => {
    const { install_key } = readBody(LeaveRequest, 'POST', req.body);
    const ip = req.ip ?? '';
    const left = await enrolments.leave(install_key, ip).catch(slowDown(ip));
    if (left) log.info({ device: left.id, device_name: left.name, site: left.site, address: ip }, 'device left');
    res.status(204).end();
  });
  return router;
}
