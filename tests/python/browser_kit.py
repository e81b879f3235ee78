"""Chromium without a screen, for tests of pages: opens files in it, as a phone or a desk, looks at what they log, points and types. It speaks the DevTools protocol
over two pipes; the standard library only. `chromium()` is None where it is not installed. tests/bench/report.py uses it, too."""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def chromium():
    return next((path for name in ('chromium', 'chromium-browser', 'google-chrome') if (path := shutil.which(name))), None)


def no_browser():
    """Why there is none; '' where there is."""
    if not chromium():
        return 'chromium is not installed'
    try:
        with Browser():
            return ''
    except (OSError, RuntimeError) as problem:
        return f'chromium does not start here ({problem})'


class Browser:
    """One page at a time. `with Browser() as b: b.open(path, 1280, 900); b.run('1 + 1')`."""

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        self.folder = tempfile.mkdtemp(prefix='browser-')
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()

        def place():  # the browser reads commands from descriptor 3 and answers on 4
            os.dup2(to_read, 10)
            os.dup2(from_write, 11)
            os.dup2(10, 3)
            os.dup2(11, 4)

        self.process = subprocess.Popen(
            [chromium(), '--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--disable-dev-shm-usage', '--no-first-run',
             '--disable-background-networking', f'--user-data-dir={self.folder}', '--remote-debugging-pipe', 'about:blank'],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.out, self.inn, self.rest = to_write, from_read, b''
        self.numbers, self.events = itertools.count(1), []
        self.session = None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.out)
        os.close(self.inn)
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, limit):
        """The next message, or None if there is none for so many seconds."""
        end = time.monotonic() + limit
        while b'\0' not in self.rest:
            if not select.select([self.inn], [], [], max(0, end - time.monotonic()))[0]:
                return None
            piece = os.read(self.inn, 1 << 20)
            if not piece:
                raise RuntimeError('the browser has ended')
            self.rest += piece
        line, self.rest = self.rest.split(b'\0', 1)
        return json.loads(line)

    def call(self, method, **params):
        number = next(self.numbers)
        message = dict(id=number, method=method, params=params, **({'sessionId': self.session} if self.session else {}))
        data = json.dumps(message).encode() + b'\0'
        while data:
            data = data[os.write(self.out, data):]
        while True:
            answer = self.read(120)
            if answer is None:
                raise RuntimeError(f'{method}: no answer')
            if answer.get('id') == number:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]}')
                return answer['result']
            self.events.append(answer)

    def open(self, path, width=1280, height=900, scheme='light', touch=False, fragment='', ready='document.body && document.body.dataset.ready === "yes"'):
        """Opens a file and waits until it says that it is ready."""
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call('Emulation.setTouchEmulationEnabled', enabled=touch, maxTouchPoints=2 if touch else 1)
        self.call('Emulation.setEmulatedMedia', media='', features=[{'name': 'prefers-color-scheme', 'value': scheme}])
        self.call('Page.navigate', url='about:blank')
        self.events = []
        self.call('Page.navigate', url=f'file://{os.path.realpath(path)}{fragment}')
        self.until(ready)

    def becomes(self, expression, limit=10):
        """Waits until an expression holds, and says whether it did."""
        end = time.monotonic() + limit
        while not self.run(expression):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def until(self, expression, limit=60):
        if not self.becomes(expression, limit):
            raise RuntimeError(f'never true: {expression}; the page said {self.complaints()}')

    def run(self, expression):
        """The value of an expression in the page."""
        answer = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise RuntimeError(f'{expression}: {answer["exceptionDetails"]}')
        return answer['result'].get('value')

    def complaints(self):
        """What the page has logged, thrown or asked the network for since it was opened."""
        self.run('0')
        out = []
        for event in self.events:
            method, params = event.get('method'), event.get('params', {})
            if method == 'Runtime.exceptionThrown':
                details = params['exceptionDetails']
                out.append(details.get('exception', {}).get('description') or details['text'])
            elif method == 'Runtime.consoleAPICalled':
                out.append(f'console.{params["type"]}: {params["args"]}')
            elif method == 'Log.entryAdded':
                out.append(params['entry']['text'])
            elif method == 'Network.requestWillBeSent' and params['documentURL'] != params['request']['url']:
                out.append(f'asked for {params["request"]["url"]}')
        return out

    def painted(self):
        """Waits until what has changed is painted."""
        self.run('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))')

    # ---- Elements

    def text(self, selector):
        return self.run(f'document.querySelector({json.dumps(selector)}).textContent')

    def box(self, selector):
        """Left, top, width and height on the screen."""
        return self.run(f'(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; }})()')

    def show(self, selector):
        """Scrolls to an element."""
        self.run(f'document.querySelector({json.dumps(selector)}).scrollIntoView()')

    def press(self, selector, text=None):
        """Clicks the first of such elements, or the first that has just this text."""
        found = f'[...document.querySelectorAll({json.dumps(selector)})]'
        self.run(f'{found}.find((x) => x.textContent === {json.dumps(text)}).click()' if text else f'{found}[0].click()')

    def fill(self, selector, value, event):
        """Gives a field a value, as somebody who types or chooses."""
        selector, value, event = map(json.dumps, (selector, value, event))
        self.run(f'(() => {{ const x = document.querySelector({selector}); x.value = {value}; x.dispatchEvent(new Event({event})); }})()')

    # ---- Hands

    def mouse(self, kind, x, y, **more):
        self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

    def drag(self, x, y, to_x, steps=5):
        """Draws the mouse sideways, its left button down."""
        self.mouse('mousePressed', x, y, button='left', buttons=1, clickCount=1)
        for i in range(1, steps + 1):
            self.mouse('mouseMoved', x + (to_x - x) * i / steps, y, button='left', buttons=1)
        self.mouse('mouseReleased', to_x, y, button='left', clickCount=1)

    def touch(self, kind, *points):
        self.call('Input.dispatchTouchEvent', type=kind, touchPoints=[{'x': x, 'y': y, 'id': i} for i, (x, y) in enumerate(points)])

    def tap(self, x, y):
        self.touch('touchStart', (x, y))
        self.touch('touchEnd')

    def spread(self, x, y, distance, steps=5):
        """Two fingers beside a place move apart by so much each."""
        self.touch('touchStart', (x - 20, y), (x + 20, y))
        for i in range(1, steps + 1):
            self.touch('touchMove', (x - 20 - distance * i / steps, y), (x + 20 + distance * i / steps, y))
        self.touch('touchEnd')

    def swipe_up(self, x, y, distance, steps=11):
        self.touch('touchStart', (x, y))
        for i in range(1, steps + 1):
            self.touch('touchMove', (x, y - distance * i / steps))
        self.touch('touchEnd')

    def picture(self, path, whole=True):
        """A screenshot of the whole page."""
        data = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=whole)['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))
