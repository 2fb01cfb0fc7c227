"""A measuring child that asks to be alone on its processor, and never ends by itself."""

from threading import Event

from appliance.runtime.processors.measuring.alone import ALONE

if __name__ == "__main__":
    print(ALONE, flush=True)
    Event().wait()
